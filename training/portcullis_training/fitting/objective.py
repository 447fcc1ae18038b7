"""What one training step minimises: the method's loss, of images as they are or mixed.

A batch first becomes the material of a step, whole images (which may have a box of another) and compound ones. The
material may go through the classifier in parts: the losses of the parts add up to that of the whole.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from portcullis_training.methods import Method
from portcullis_training.mixing.cutmix import cut_mix
from portcullis_training.mixing.fractional import compound_images, compound_targets, divergence

REGULARISER_WEIGHT = 1.0
"""The paper's α."""


class Material(NamedTuple):
    """What goes through the classifier: whole images first, then compound ones, and what they count for."""

    images: Tensor  # (W + K, 3, H, W)
    labels: Tensor  # (W,) of the whole images
    targets: Tensor  # (K, C) of the compound ones; K is 0 without the regulariser
    whole_share: float = 1.0
    """Share of the step's whole images that is here."""
    compound_share: float = 1.0
    partner_labels: Tensor | None = None  # (W,) of the images that boxes came from
    own_share: float = 1.0
    """Of the area of each whole image that is its own."""


class Objective(NamedTuple):
    """The loss of some material and how many of its whole images were answered rightly."""

    loss: Tensor
    num_correct: Tensor
    """Stays on the device: reading it every step would stall a GPU."""
    num_counted: int


def material_of(
    images: Tensor, labels: Tensor, num_classes: int, mixing: str, generator: Generator, num_context: int = 0
) -> Material:
    """The material of a shuffled batch: as it is, with boxes, or with its second half as compound images."""
    if mixing == "cutmix":
        mixed = cut_mix(images, labels, generator)
        none = labels.new_zeros(0, num_classes)
        return Material(mixed.images, labels, none, partner_labels=mixed.partner_labels, own_share=mixed.own_share)
    if mixing == "fractional":
        return compound_material(images, labels, num_classes, num_context)
    return Material(images, labels, labels.new_zeros(0, num_classes))


def compound_material(images: Tensor, labels: Tensor, num_classes: int, num_context: int = 0) -> Material:
    """The second half becomes compound images.

    `num_context` images at the start of the second half belong to another process; they are only there to be patches.
    """
    num_compound = (len(images) - num_context) // 2
    num_whole = len(images) - num_context - num_compound
    if num_compound == 0:  # also a last batch of one image, which has no second half
        return Material(images, labels, labels.new_zeros(0, num_classes))
    compound = compound_images(images[num_whole:])[num_context:]
    targets = compound_targets(labels[num_whole:], num_classes)[num_context:]  # (K, C)
    return Material(torch.cat([images[:num_whole], compound]), labels[:num_whole], targets)


def in_parts(material: Material, num_parts: int) -> Iterator[Material]:
    """The material in parts of nearly equal size, each with its share of whole and of compound images."""
    num_whole, num_compound = len(material.labels), len(material.targets)
    num_parts = min(num_parts, num_whole, num_compound or num_whole)
    whole = torch.tensor_split(material.images[:num_whole], num_parts)
    compound = torch.tensor_split(material.images[num_whole:], num_parts)
    labels, targets = (torch.tensor_split(values, num_parts) for values in (material.labels, material.targets))
    partners = None if material.partner_labels is None else torch.tensor_split(material.partner_labels, num_parts)
    for index in range(num_parts):
        yield Material(
            torch.cat([whole[index], compound[index]]) if num_compound else whole[index],
            labels[index],
            targets[index],
            len(labels[index]) / num_whole,
            len(targets[index]) / max(num_compound, 1),
            None if partners is None else partners[index],
            material.own_share,
        )


def objective(
    method: Method, classifier: Callable[[Tensor], Tensor], material: Material, deviations: Tensor | float = 1.0
) -> Objective:
    """The loss of the material: CE, or (CE(whole images) + α · KL(Q ‖ P) of the compound ones) / 2.

    The classifier runs once, so that it may be compiled or distributed. `deviations` are those that it normalises by.
    """
    num_whole = len(material.labels)
    images = material.images.detach().requires_grad_() if method.has_penalty else material.images
    logits = classifier(images)  # (W + K, C)
    loss = _loss(method, logits[:num_whole], material)
    if method.has_penalty:
        loss = loss + method.penalty(logits, images, deviations)
    loss = material.whole_share * loss
    if len(material.targets):
        log_probabilities = method.training_log_probabilities(logits[num_whole:])
        regulariser = material.compound_share * divergence(material.targets, log_probabilities)
        loss = (loss + REGULARISER_WEIGHT * regulariser) / 2
    num_correct = (logits[:num_whole].detach().argmax(dim=1) == material.labels).sum()
    return Objective(loss, num_correct, num_whole)


def _loss(method: Method, logits: Tensor, material: Material) -> Tensor:
    """Of whole images; where they have boxes, λ · loss(own labels) + (1 − λ) · loss(those of the boxes)."""
    loss = method.loss(logits, material.labels)
    if material.partner_labels is None or material.own_share == 1:
        return loss
    other = method.loss(logits, material.partner_labels)
    return material.own_share * loss + (1 - material.own_share) * other
