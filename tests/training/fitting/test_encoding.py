"""Encoding: every image once, the same as the classifier would, and from where it stopped."""

import numpy as np
import pytest
import torch

from portcullis_training import backbones, methods
from portcullis_training.data.image_set import ArrayImages
from portcullis_training.data.sources import from_arrays
from portcullis_training.fitting import encoding
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.encoder_session import encoder_session
from portcullis_training.fitting.encoding import Encoder, encoder_digest
from portcullis_training.fitting.feature_store import Encoded, FeatureStore

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def images(num_images: int, seed: int = 0) -> ArrayImages:
    pixels = np.random.default_rng(seed).integers(0, 256, (num_images, 16, 16, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.arange(num_images) % 2)


SPEC = from_arrays("", images(2), None, ("a", "b")).image_spec


def classifier(seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    backbone = backbones.build("small:4-6-8")
    made = Classifier(backbone, methods.find("dismax").make_head(8, 2), (0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
    made(torch.rand(16, 3, 16, 16))  # batch-norm statistics that are not those of a fresh network
    return made.eval()


def counting(monkeypatch) -> list[int]:
    """How many images went through the network, call by call."""
    seen: list[int] = []

    def session(*arguments):
        run = encoder_session(*arguments)

        def counted(pixels):
            seen.append(len(pixels))
            return run(pixels)

        return counted

    monkeypatch.setattr(encoding, "encoder_session", session)
    return seen


def test_features_and_middle_are_those_of_the_classifier():
    made, pixels = classifier(), images(70)
    (encoded,) = Encoder(made, SPEC, CPU, 0).encode([pixels])
    normalised = (torch.from_numpy(pixels.images).permute(0, 3, 1, 2) / 255 - made.mean) / made.std
    with torch.no_grad():
        features, middle = made.backbone.features_and_middle(normalised)
    torch.testing.assert_close(encoded.features, features, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoded.middle, middle, atol=1e-5, rtol=1e-4)
    assert encoded.features.shape == (70, 8)


def test_torch_gives_what_onnx_runtime_gives(monkeypatch):
    made, pixels = classifier(), torch.from_numpy(images(5).images)
    fast = encoder_session(made, SPEC, CPU)(pixels)
    monkeypatch.setattr("portcullis_training.fitting.encoder_session._by_onnx_runtime", lambda *_: 1 / 0)
    torch.testing.assert_close(encoder_session(made, SPEC, CPU)(pixels), fast, atol=1e-5, rtol=1e-4)


def test_images_that_nobody_asks_for_again_are_encoded_alike_and_not_kept(capsys):
    encoder = Encoder(classifier(), SPEC, CPU, 0)
    once = encoder.encode_once(images(40), "strangers")
    assert not encoder.store.exists and "strangers: " in capsys.readouterr().err  # it is named while it runs
    (kept,) = encoder.encode([images(40)])
    torch.testing.assert_close(once.features, kept.features)
    torch.testing.assert_close(once.middle, kept.middle)


def test_no_image_is_encoded_twice_whatever_set_it_is_in(monkeypatch):
    seen, made = counting(monkeypatch), classifier()
    first = Encoder(made, SPEC, CPU, 0).encode([images(40), images(10, seed=1)])
    assert sum(seen) == 50
    later = Encoder(made, SPEC, CPU, 0).encode([images(10, seed=1), images(40), images(3, seed=2)])
    assert sum(seen) == 53
    assert torch.equal(first[1].features, later[0].features) and torch.equal(first[0].middle, later[1].middle)
    copies = images(3, seed=3).subset(np.array([0, 1, 0, 2, 2]))
    (encoded,) = Encoder(made, SPEC, CPU, 0).encode([copies])
    assert sum(seen) == 56 and torch.equal(encoded.features[0], encoded.features[2])


def test_an_interrupted_encoding_goes_on_where_it_stopped(monkeypatch):
    seen, made = counting(monkeypatch), classifier()
    original = FeatureStore.add

    def interrupted(self, *arguments):
        original(self, *arguments)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FeatureStore, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Encoder(made, SPEC, CPU, 0).encode([images(100)])
    assert sum(seen) == 64
    (encoded,) = Encoder(made, SPEC, CPU, 0).encode([images(100)])
    assert sum(seen) == 100 and len(encoded.features) == 100


def test_an_encoder_is_known_by_weights_normalisation_and_geometry():
    digest = encoder_digest(classifier(), SPEC)
    assert digest == encoder_digest(classifier(), SPEC)
    assert digest != encoder_digest(classifier(seed=1), SPEC)
    assert digest != encoder_digest(classifier(), SPEC.model_copy(update={"interpolation": "bicubic"}))
    other = classifier()
    other.mean += 0.1
    assert digest != encoder_digest(other, SPEC)
    head = classifier()
    torch.nn.init.zeros_(head.head.distances.prototypes)
    assert digest == encoder_digest(head, SPEC)  # the head has no part in it


def test_features_of_a_backbone_that_a_run_trained_stay_with_the_run(tmp_path):
    shared = Encoder(classifier(), SPEC, CPU, 0)
    shared.encode([images(3)])
    assert Encoder(classifier(), SPEC, CPU, 0, tmp_path / "run").store.path == shared.store.path
    trained = Encoder(classifier(seed=1), SPEC, CPU, 0, tmp_path / "run")
    trained.encode([images(3)])
    assert trained.store.path.parent == tmp_path / "run" and trained.store.exists


def test_a_store_keeps_order_and_knows_what_is_missing(tmp_path):
    store = FeatureStore("0" * 64, tmp_path)
    rows = torch.arange(1200.0).view(600, 2)
    names = [f"{index:03}" for index in range(600)]
    store.add(names, Encoded(rows, -rows[:, :1]))
    assert store.missing([*names, "new"]) == {"new"}
    read = store.read(["599", "000", "300", "000"])
    assert torch.equal(read.features, rows[[599, 0, 300, 0]]) and torch.equal(read.middle, -rows[[599, 0, 300, 0], :1])
