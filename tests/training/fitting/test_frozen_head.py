"""A head alone, on features: it loses nothing against a linear one, whatever the features look like."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from portcullis_training import methods
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.methods.formulas import centring
from portcullis_training.methods.formulas.centring import CentredHead

NUM_CLASSES, NUM_FEATURES = 6, 64


def features(num_images: int, seed: int, apart: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """As a pretrained network gives them: far from the origin, nearly parallel, classes a small way apart."""
    centres = np.random.default_rng(0).normal(size=(NUM_CLASSES, NUM_FEATURES))
    random = np.random.default_rng(seed)
    labels = random.integers(0, NUM_CLASSES, num_images)
    rows = 20 + apart * centres[labels] + random.normal(size=(num_images, NUM_FEATURES))
    return torch.tensor(rows, dtype=torch.float32), torch.from_numpy(labels)


def trained(name: str, rows: torch.Tensor, labels: torch.Tensor, **options) -> CentredHead:
    torch.manual_seed(0)
    head = CentredHead(methods.find(name).make_head(NUM_FEATURES, NUM_CLASSES), NUM_FEATURES)
    train_head(head, methods.find(name), rows, labels, **{"seed": 0, **options})
    return head


def accuracy(head: CentredHead, rows: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return float((head(rows).argmax(dim=1) == labels).float().mean())


@pytest.mark.parametrize("name", ["dismax", "isomaxplus", "softmax"])
def test_a_head_loses_nothing_against_a_linear_one(name):
    rows, labels = features(1200, 1)
    others, truth = features(3000, 2)
    linear = LogisticRegression(max_iter=2000).fit(rows.numpy(), labels.numpy())
    assert accuracy(trained(name, rows, labels), others, truth) >= linear.score(others.numpy(), truth.numpy()) - 0.01


def test_a_head_that_is_shown_half_of_the_features_knows_more_photos_than_those_of_its_training(monkeypatch):
    rows, labels = features(150, 1, apart=0.25)  # 25 a class, with 64 features
    others, truth = features(6000, 2, apart=0.25)
    right = []
    for dropped in (0.0, centring.DROPPED):
        monkeypatch.setattr(centring, "DROPPED", dropped)
        right.append(accuracy(trained("dismax", rows, labels), others, truth))
    assert right[1] > right[0] + 0.02


def test_centring_brings_features_around_the_origin_at_a_known_length():
    rows, _ = features(500, 1)
    head = CentredHead(torch.nn.Identity(), NUM_FEATURES)
    head.fit(rows)
    centred = head.centred(rows)
    assert centred.mean(dim=0).abs().max() < 1e-4
    assert float(centred.norm(dim=1).mean()) == pytest.approx(NUM_FEATURES**0.5, rel=1e-4)


@pytest.mark.parametrize("name", ["dismax", "isomaxplus"])
def test_prototypes_start_at_the_means_of_their_classes(name):
    head = methods.find(name).make_head(2, 3)
    means = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]])
    methods.find(name).start_head(head, means)
    assert torch.equal(head.distances.prototypes.detach(), means) and head.distances.prototypes.requires_grad


def test_the_same_seed_gives_the_same_head():
    rows, labels = features(300, 1)
    first, again, other = (trained("dismax", rows, labels, seed=seed)(rows) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_rare_class_is_found_more_often_where_the_classes_are_balanced():
    rows, labels = features(4000, 1)
    kept = torch.cat([torch.nonzero(labels != 0).flatten(), torch.nonzero(labels == 0).flatten()[:8]])
    others, truth = features(6000, 2)
    recalls = [
        accuracy(
            trained("softmax", rows[kept], labels[kept], class_balance=balance), others[truth == 0], truth[truth == 0]
        )
        for balance in (0.0, 1.0)
    ]
    assert recalls[1] > recalls[0] + 0.05
