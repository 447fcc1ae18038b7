"""Export a calibrated and evaluated run: graph, manifest and report, proven by serving it before it gets its name."""

import copy
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from service import bundle as bundles
from service.bundle import (
    MODEL_FILE,
    Bundle,
    Figures,
    ImageSpec,
    Manifest,
    MethodInfo,
    OutsideFigures,
    SelfTest,
    write_bundle,
)
from service.engine import Engine, EngineOptions, Outputs, self_test_images
from service.preprocess import decode
from training.calibrate import Calibration, load_calibration
from training.data import as_array
from training.errors import DataError
from training.evaluate import Evaluation, OutsideSetFigures, load_evaluation, predict_of
from training.graph import ServedClassifier, to_onnx
from training.parity import check_measured, check_parity, extreme_images, torch_outputs
from training.predictions import Predict
from training.provenance import CONFIG_FILE, portable_config, provenance_of
from training.report import render_report
from training.runs import Run
from training.trained import Trained, open_trained

EXAMPLE_SUFFIXES = (".gif", ".jpeg", ".jpg", ".png", ".webp")
NUM_REAL_IMAGES = 64
"""Test images that parity is proven on, beside the extreme ones."""


def export(run: Run, models: Path, examples: Path | None = None) -> Bundle:
    """Write the next version of the run's bundle below `models`; one that cannot be served is never written.

    `examples`: a folder of pictures that go along, for people who try the model.
    """
    trained = open_trained(run)
    calibration = load_calibration(trained)
    evaluation = load_evaluation(trained)
    classifier = copy.deepcopy(trained.classifier).cpu()  # parity is proven on the CPU, whatever trained it
    served = ServedClassifier(classifier, trained.method, calibration.temperature, calibration.score_temperature).eval()
    graph = to_onnx(served, trained.splits.image_spec)
    manifest = make_manifest(trained, calibration, evaluation, served, _next_version(models, run.config.name))
    predict = predict_of(trained, calibration)
    report = render_report(manifest, evaluation, trained, predict)
    files = {
        MODEL_FILE: graph,
        CONFIG_FILE: (portable_config(run.config).model_dump_json(indent=1) + "\n").encode(),
        **report,
        **read_examples(examples, trained.splits.image_spec),
    }
    written = write_bundle(models, manifest, files, check=lambda draft: _prove(draft, served, trained, predict))
    _keep_report(run, report)
    return written


def read_examples(folder: Path | None, image: ImageSpec) -> dict[str, bytes]:
    """The pictures of a folder, each proven to decode as the service will decode it; other files stay behind."""
    if folder is None:
        return {}
    found = sorted(path for path in folder.glob("*") if path.suffix.lower() in EXAMPLE_SUFFIXES)
    if not found:
        raise DataError(f"expected a folder with pictures ({', '.join(EXAMPLE_SUFFIXES)}), got {folder}")
    pictures = {f"examples/{path.name}": path.read_bytes() for path in found}
    for picture in pictures.values():
        decode(picture, image)
    return pictures


def make_manifest(
    trained: Trained, calibration: Calibration, evaluation: Evaluation, served: ServedClassifier, version: int
) -> Manifest:
    """Everything about the graph that is not arithmetic."""
    config = trained.run.config
    expected = torch_outputs(served, self_test_images(trained.splits.image_spec))
    return Manifest(
        name=config.name,
        version=version,
        created=datetime.now(UTC),
        labels=trained.splits.class_names,
        image=trained.splits.image_spec,
        method=MethodInfo(
            name=config.method,
            backbone=config.backbone,
            fractional_regulariser=config.fractional_regulariser,
            score=calibration.score,
            score_temperature=calibration.score_temperature,
        ),
        temperature=calibration.temperature,
        calibration=calibration.scores,
        operating_points=calibration.operating_points,
        class_mix=calibration.class_mix,
        figures=_figures(evaluation),
        provenance=provenance_of(trained),
        self_test=SelfTest(
            probabilities=tuple(tuple(row) for row in expected.probabilities.tolist()),
            scores=tuple(expected.scores.tolist()),
        ),
    )


def _prove(draft: Bundle, served: ServedClassifier, trained: Trained, predict: Predict) -> None:
    """Load the draft as the service does, warm it up, compare it with torch and with what evaluation measured."""
    engine = Engine(draft, EngineOptions(providers=("cpu",)))
    engine.self_test()
    test = trained.splits.test
    chosen = np.linspace(0, len(test) - 1, min(NUM_REAL_IMAGES, len(test))).astype(np.int64)
    real = as_array(test.subset(chosen))
    check_parity(engine.run, served, np.concatenate([extreme_images(trained.splits.image_spec), real]))
    measured = predict("test", test)
    check_measured(engine.run(real), Outputs(measured.probabilities[chosen], measured.score[chosen]))


def _figures(evaluation: Evaluation) -> Figures:
    inside = evaluation.inside
    return Figures(
        num_images=inside.num_images,
        accuracy=inside.accuracy,
        ece=inside.ece,
        nll=inside.nll,
        brier=inside.brier,
        rejected=inside.rejected,
        outside={name: _outside(figures, evaluation.shipped_score) for name, figures in evaluation.outside.items()},
    )


def _outside(figures: OutsideSetFigures, shipped_score: str) -> OutsideFigures:
    shipped = figures.by_score[shipped_score]
    return OutsideFigures(
        num_images=figures.num_images,
        auroc=shipped.auroc_inside_positive,
        aupr_inside=shipped.aupr_inside_positive,
        aupr_outside=shipped.aupr_outside_positive,
        tnr_at_tpr95=shipped.tnr_at_tpr95_inside_positive,
        caught=figures.caught,
        score_quantiles=figures.score_quantiles,
    )


def _next_version(models: Path, name: str) -> int:
    return max(bundles.versions(models, name), default=0) + 1


def _keep_report(run: Run, report: dict[str, bytes]) -> None:
    """A copy beside the run, so that a person need not look into the bundle."""
    for file, content in report.items():
        path = run.directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
