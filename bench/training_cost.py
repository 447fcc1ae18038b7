"""`python -m bench.training_cost`: what DisMax costs beside its SoftMax twin, in training and when served.

Ratios of processor time in one interleaved run, medians over rounds, so that a busy machine slows both alike. The aim:
a training step at most 1.05 times SoftMax's, the exported graph at most 1.03 times per image.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch

from portcullis.bundle.manifest import ImageSpec
from portcullis_training import backbones, methods
from portcullis_training.commands import host
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.objective import material_of, objective
from portcullis_training.measuring.cost import interleaved_ratio, relative_inference_cost

RESULTS = Path(__file__).parent / "results" / "training_cost.json"
NUM_CLASSES = 10
MOST = {"training step": 1.05, "exported graph": 1.03}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.training_cost", description=__doc__)
    parser.add_argument("--backbone", default="resnet9")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--methods", default="softmax,isomaxplus,dismax", help="by commas; DisMax also with compounds")
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time for each ratio")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    host.settle()
    torch.set_num_threads(1)
    chosen = arguments.methods.split(",")
    results = measure(chosen, arguments.backbone, arguments.image_size, arguments.batch_size, arguments.seconds)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    print(f"kept in {arguments.out}")


def measure(
    chosen: list[str], backbone: str, image_size: int, batch_size: int, max_seconds: float
) -> dict[str, object]:
    """Every method against SoftMax; SoftMax against itself shows what the measurement is worth."""
    theirs = training_step("softmax", False, backbone, image_size, batch_size)
    ratios = {}
    for name, is_fractional in [*((name, False) for name in chosen), *[("dismax", True)] * ("dismax" in chosen)]:
        ours = training_step(name, is_fractional, backbone, image_size, batch_size)
        row = {"training step": interleaved_ratio(ours, theirs, max_seconds)}
        if not is_fractional:  # the graph is the same
            costs = relative_inference_cost(
                classifier_of(name, backbone), methods.find(name), spec(image_size), max_seconds
            )
            row |= {f"exported graph, {batch}": cost for batch, cost in costs.items()}
        ratios[name + ("+fractional" if is_fractional else "")] = row
    return {
        "backbone": backbone, "image_size": image_size, "batch_size": batch_size, "seconds": max_seconds,
        "torch": torch.__version__, "relative_to_softmax": ratios,
    }  # fmt: skip


def training_step(
    name: str, is_fractional: bool, backbone: str, image_size: int, batch_size: int
) -> Callable[[], object]:
    """One step of SGD as `fit` does it: forward, loss, backward, update."""
    method, classifier = methods.find(name), classifier_of(name, backbone).train()
    classifier = classifier.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, nesterov=True)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(batch_size, 3, image_size, image_size, generator=generator)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, NUM_CLASSES, (batch_size,), generator=generator)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        material = material_of(images, labels, NUM_CLASSES, "fractional" if is_fractional else "none", generator)
        objective(method, classifier, material, classifier.std).loss.backward()
        optimizer.step()
        method.after_step(classifier, images, labels, lambda values: values)

    return step


def classifier_of(name: str, backbone: str) -> Classifier:
    torch.manual_seed(0)
    body = backbones.build(backbone)
    methods.find(name).change_backbone(body)
    head = methods.find(name).make_head(body.num_features, NUM_CLASSES)
    return Classifier(body, head, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).eval()


def spec(image_size: int) -> ImageSpec:
    return ImageSpec(height=image_size, width=image_size)


def table(results: dict) -> str:
    columns = ("training step", "exported graph, batch of 1", "exported graph, batch of 32")
    lines = ["| method, relative to SoftMax | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name, row in results["relative_to_softmax"].items():
        lines.append(f"| {name} | " + " | ".join(f"{row[c]:.3f}" if c in row else "as without" for c in columns) + " |")
    return "\n".join([*lines, "", "aim: " + ", ".join(f"{what} ≤ {most}" for what, most in MOST.items())])


if __name__ == "__main__":
    main()
