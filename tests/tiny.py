"""A genuine tiny bundle, made with onnx alone: it sorts plain-coloured images into red, green and blue.

The graph takes the mean colour of an image, compares it with three prototypes and computes the same outputs as a
DisMax export: calibrated probabilities and MMLES. A grey or patterned image is far from every prototype. In format 2
its score is fitted: MMLES and `middle`, minus the spread of an image's pixels, which a patterned image has.
"""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from portcullis.bundle import gate
from portcullis.bundle.files import Bundle, write_bundle
from portcullis.bundle.manifest import (
    CalibrationRows,
    CalibrationScores,
    Figures,
    ImageSpec,
    Manifest,
    MethodInfo,
    OutsideFigures,
    Provenance,
    ScoreInfo,
    SelfTest,
)
from portcullis.bundle.self_test import self_test_images

LABELS = ("red", "green", "blue")
SIZE = 8
TEMPERATURE = 0.1


PARTS = ("mmles", "middle")
MEANS, DEVIATIONS, WEIGHTS = (-3.2, -0.016), (0.25, 0.004), (1.0, 0.5)


def graph(size: int = SIZE, sharpness: float = 1.0, format_version: int = 1) -> bytes:
    """`sharpness` scales the distances, so that two versions can be told apart by their answers."""
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["floats", "full"], ["unit"]),
        helper.make_node("ReduceMean", ["unit", "space"], ["colour"], keepdims=0),  # (N, 3)
        helper.make_node("Unsqueeze", ["colour", "one"], ["colours"]),  # (N, 1, 3)
        helper.make_node("Sub", ["colours", "prototypes"], ["gaps"]),  # (N, C, 3)
        helper.make_node("ReduceL2", ["gaps", "last"], ["lengths"], keepdims=0),  # (N, C)
        helper.make_node("Mul", ["lengths", "sharpness"], ["distances"]),
        helper.make_node("ReduceMean", ["distances", "one"], ["mean_distance"], keepdims=1),
        helper.make_node("Add", ["distances", "mean_distance"], ["plus"]),
        helper.make_node("Neg", ["plus"], ["logits"]),
        helper.make_node("Div", ["logits", "temperature"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["probabilities"], axis=1),
        helper.make_node("LogSoftmax", ["logits"], ["log_p"], axis=1),
        helper.make_node("Exp", ["log_p"], ["p"]),
        helper.make_node("Mul", ["p", "log_p"], ["p_log_p"]),
        helper.make_node("ReduceSum", ["p_log_p", "one"], ["negative_entropy"], keepdims=0),
        helper.make_node("ReduceMax", ["logits", "one"], ["max_logit"], keepdims=0),
        helper.make_node("ReduceMean", ["logits", "one"], ["mean_logit"], keepdims=0),
        helper.make_node("Add", ["max_logit", "mean_logit"], ["max_plus_mean"]),
        helper.make_node("Add", ["max_plus_mean", "negative_entropy"], ["score" if format_version == 1 else "mmles"]),
    ]
    if format_version == 2:
        nodes += _fitted_nodes()
    constants = {
        "full": np.float32(255),
        "sharpness": np.float32(sharpness),
        "temperature": np.float32(TEMPERATURE),
        "prototypes": np.eye(3, dtype=np.float32)[None],
        "space": np.array([1, 2], np.int64),
        "one": np.array([1], np.int64),
        "last": np.array([2], np.int64),
    }
    if format_version == 2:
        constants |= {
            "columns": np.array([1, 2, 3], np.int64),
            "means": np.array(MEANS, np.float32),
            "scaled_weights": np.array([[w / d] for w, d in zip(WEIGHTS, DEVIATIONS, strict=True)], np.float32),
        }
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", size, size, 3])
    outputs = [
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"]),
    ]
    if format_version == 2:
        outputs.append(helper.make_tensor_value_info("parts", TensorProto.FLOAT, ["N", len(PARTS)]))
    initialisers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "tiny", [images], outputs, initialisers),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _fitted_nodes() -> list[onnx.NodeProto]:
    """`middle` is minus the variance of the pixels, and `score` the weighted sum of the standardised parts."""
    return [
        helper.make_node("ReduceMean", ["unit", "space"], ["colour_of_all"], keepdims=1),
        helper.make_node("Sub", ["unit", "colour_of_all"], ["deviations"]),
        helper.make_node("Mul", ["deviations", "deviations"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "columns"], ["variance"], keepdims=0),
        helper.make_node("Neg", ["variance"], ["middle"]),
        helper.make_node("Unsqueeze", ["mmles", "one"], ["first"]),
        helper.make_node("Unsqueeze", ["middle", "one"], ["second"]),
        helper.make_node("Concat", ["first", "second"], ["parts"], axis=1),
        helper.make_node("Sub", ["parts", "means"], ["centred"]),
        helper.make_node("MatMul", ["centred", "scaled_weights"], ["weighted"]),
        helper.make_node("Squeeze", ["weighted", "one"], ["score"]),
    ]


def parts_of(images: NDArray[np.uint8], sharpness: float = 1.0) -> NDArray[np.float32]:
    """The parts of format 2 once more in NumPy, (N, 2)."""
    unit = images.astype(np.float64) / 255
    middle = -((unit - unit.mean(axis=(1, 2), keepdims=True)) ** 2).mean(axis=(1, 2, 3))
    return np.stack([answers(images, sharpness)[1], middle], axis=1).astype(np.float32)


def fitted_scores(parts: NDArray[np.float32]) -> NDArray[np.float32]:
    """The score of format 2 once more in NumPy, (N,)."""
    return ((parts - np.array(MEANS)) / DEVIATIONS @ np.array(WEIGHTS)).astype(np.float32)


def answers(images: NDArray[np.uint8], sharpness: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The graph once more in NumPy: what the engine must answer, in format 1."""
    colours = images.astype(np.float64).mean(axis=(1, 2)) / 255
    distances = sharpness * np.linalg.norm(colours[:, None] - np.eye(3), axis=2)
    logits = -(distances + distances.mean(axis=1, keepdims=True))
    probabilities = _softmax(logits / TEMPERATURE)
    plain = _softmax(logits)
    entropy = -(plain * np.log(plain)).sum(axis=1)
    scores = logits.max(axis=1) + logits.mean(axis=1) - entropy
    return probabilities.astype(np.float32), scores.astype(np.float32)


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def familiar(num_images: int, seed: int, size: int = SIZE) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noisy images of one of the three colours."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, num_images)
    colours = np.eye(3)[labels][:, None, None, :] * 200 + 25
    noise = random.normal(0, 30, (num_images, size, size, 3)) + random.normal(0, 25, (num_images, 1, 1, 3))
    return np.clip(colours + noise, 0, 255).astype(np.uint8), labels


def manifest(
    name: str = "tiny", version: int = 1, sharpness: float = 1.0, num_calibration: int = 999, size: int = SIZE
) -> Manifest:
    images, labels = familiar(num_calibration, seed=1)
    probabilities, scores = answers(images, sharpness)
    calibration: CalibrationScores = gate.summarise([float(score) for score in scores])
    accuracy = float((probabilities.argmax(axis=1) == labels).mean())
    probe = answers(self_test_images(ImageSpec(height=size, width=size)), sharpness)
    return Manifest(
        name=name,
        version=version,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        labels=LABELS,
        image=ImageSpec(height=size, width=size),
        method=MethodInfo(
            name="dismax", backbone="mean-colour", fractional_regulariser=False, score="mmles", score_temperature=1.0
        ),
        temperature=TEMPERATURE,
        calibration=calibration,
        operating_points=gate.operating_points(calibration),
        class_mix=tuple(np.bincount(probabilities.argmax(axis=1), minlength=3) / num_calibration),
        figures=Figures(
            num_images=num_calibration,
            accuracy=accuracy,
            ece=0.0,
            nll=0.0,
            brier=0.0,
            rejected={"accept95": 0.05},
            outside={
                "grey": OutsideFigures(
                    num_images=100,
                    auroc=0.99,
                    aupr_inside=0.99,
                    aupr_outside=0.99,
                    tnr_at_tpr95=0.95,
                    caught={"accept95": 0.95},
                    score_quantiles=tuple(np.linspace(-4.5, -3.5, 11)),
                )
            },
        ),
        provenance=Provenance(data="colours", data_fingerprint="0" * 64, seed=1, commit="none", libraries={}),
        self_test=SelfTest(
            probabilities=tuple(map(tuple, probe[0].tolist())), scores=tuple(map(float, probe[1].tolist()))
        ),
    )


def fitted_manifest(name: str = "tiny", version: int = 1, num_calibration: int = 999) -> Manifest:
    """The same bundle in format 2: a fitted score, its parts, and a row for every calibration image."""
    images, labels = familiar(num_calibration, seed=1)
    probabilities, _ = answers(images)
    parts = parts_of(images)
    scores = fitted_scores(parts)
    calibration = gate.summarise([float(score) for score in scores])
    probe = self_test_images(ImageSpec(height=SIZE, width=SIZE))
    first = manifest(name, version, num_calibration=num_calibration)
    return first.model_validate(
        {
            **first.model_dump(),
            "format_version": 2,
            "score": ScoreInfo(
                name="fitted", parts=PARTS, means=MEANS, deviations=DEVIATIONS, weights=WEIGHTS, fitted_on="by hand"
            ),
            "calibration": calibration,
            "calibration_rows": _rows(probabilities, labels, parts, np.argsort(scores, kind="stable")),
            "operating_points": gate.operating_points(calibration),
            "self_test": SelfTest(
                probabilities=tuple(map(tuple, answers(probe)[0].tolist())),
                scores=tuple(fitted_scores(parts_of(probe)).tolist()),
                parts=tuple(map(tuple, parts_of(probe).tolist())),
            ),
        }
    )


def _rows(
    probabilities: NDArray[np.float32],
    labels: NDArray[np.int64],
    parts: NDArray[np.float32],
    order: NDArray[np.int64],
) -> CalibrationRows:
    answered = probabilities.argmax(axis=1)
    rows = np.arange(len(labels))
    return CalibrationRows(
        class_indices=tuple(answered[order].tolist()),
        probabilities=tuple(probabilities.max(axis=1)[order].tolist()),
        is_right=tuple((answered == labels)[order].tolist()),
        true_probabilities=tuple(probabilities[rows, labels][order].tolist()),
        parts={name: tuple(parts[order, column].tolist()) for column, name in enumerate(PARTS)},
        probability_grid=tuple(np.linspace(1, 0.5, 51).round(2).tolist()),
    )


def write(models: Path, name: str = "tiny", version: int = 1, sharpness: float = 1.0, size: int = SIZE) -> Bundle:
    """Write the tiny bundle below a models directory."""
    files = {"model.onnx": graph(size, sharpness), "report.md": b"# tiny\n"}
    return write_bundle(models, manifest(name, version, sharpness, size=size), files)


def write_fitted(models: Path, name: str = "tiny", version: int = 1) -> Bundle:
    """Write the tiny bundle in format 2."""
    files = {"model.onnx": graph(format_version=2), "report.md": b"# tiny\n"}
    return write_bundle(models, fitted_manifest(name, version), files)
