"""The network that every contender serves: a CIFAR ResNet-20 with a DisMax head, untrained: only its cost matters."""

import io
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from portcullis.bundle import gate
from portcullis.bundle.files import Bundle, write_bundle
from portcullis.bundle.manifest import (
    Figures,
    ImageSpec,
    Manifest,
    MethodInfo,
    Provenance,
    SelfTest,
)
from portcullis.bundle.self_test import self_test_images
from portcullis_training import backbones, methods
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.graph.score import own_score
from portcullis_training.graph.served import FORMAT_VERSION, ServedClassifier, to_onnx

SIZE = 32
LABELS = tuple(f"class {index}" for index in range(10))
NAME = "bench-resnet20"


def write(models: Path) -> Bundle:
    """Write the bundle below `models`, calibrated on noise."""
    torch.manual_seed(0)
    spec = ImageSpec(height=SIZE, width=SIZE)
    method = methods.find("dismax")
    backbone = backbones.build("resnet20")
    head = method.make_head(backbone.num_features, len(LABELS))
    classifier = Classifier(backbone, head, (0.5,) * 3, (0.25,) * 3)
    served = ServedClassifier(classifier.eval(), 1.0, own_score(method.score_name)).eval()
    graph = to_onnx(served, spec)
    images = np.random.default_rng(0).integers(0, 256, (500, SIZE, SIZE, 3), dtype=np.uint8)
    probabilities, scores, _ = _answers(served, images)
    probe_probabilities, probe_scores, probe_parts = _answers(served, self_test_images(spec))
    calibration = gate.summarise(scores.tolist())
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        name=NAME,
        version=1,
        created=datetime.now(UTC),
        labels=LABELS,
        image=spec,
        method=MethodInfo(
            name="dismax", backbone="resnet20", fractional_regulariser=False, score="mmles", score_temperature=1.0
        ),
        score=served.score.info,
        temperature=1.0,
        calibration=calibration,
        operating_points=gate.operating_points(calibration),
        class_mix=tuple(np.bincount(probabilities.argmax(axis=1), minlength=len(LABELS)) / len(images)),
        figures=Figures(num_images=len(images), accuracy=0.1, ece=0.0, nll=0.0, brier=0.0),
        provenance=Provenance(data="noise", data_fingerprint="", seed=0, commit="", libraries={}),
        self_test=SelfTest(
            probabilities=tuple(map(tuple, probe_probabilities.tolist())),
            scores=tuple(probe_scores.tolist()),
            parts=tuple(map(tuple, probe_parts.tolist())),
        ),
    )
    return write_bundle(models, manifest, {"model.onnx": graph})


def png(seed: int = 0) -> bytes:
    """A 32×32 PNG with the structure of a photograph: smooth, with a little noise."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC)).astype(int)
    noisy = np.clip(smooth + random.integers(-8, 9, smooth.shape), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noisy).save(stream, "PNG")
    return stream.getvalue()


@torch.inference_mode()
def _answers(served: ServedClassifier, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    probabilities, scores, parts = served(torch.from_numpy(images))
    return probabilities.numpy(), scores.numpy(), parts.numpy()
