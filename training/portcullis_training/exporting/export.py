"""Export a calibrated and evaluated run: graph, manifest and report, proven by serving it before it gets its name."""

import copy
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from portcullis.bundle import files as bundles
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import MODEL_FILE, Bundle, write_bundle
from portcullis.bundle.manifest import (
    FILE_NAME_PATTERN,
    Figures,
    ImageSpec,
    Manifest,
    MethodInfo,
    OutsideFigures,
    SelfTest,
)
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.preprocess import decode
from portcullis.bundle.self_test import self_test_images
from portcullis_training.data import as_array
from portcullis_training.errors import ConfigError, DataError
from portcullis_training.exporting.parity import (
    check_measured,
    check_parity,
    extreme_images,
    torch_outputs,
)
from portcullis_training.exporting.provenance import CONFIG_FILE, portable_config, provenance_of
from portcullis_training.exporting.report import REPORT_FILE, render_report
from portcullis_training.graph.score import Score
from portcullis_training.graph.served import FORMAT_VERSION, ServedClassifier, to_onnx
from portcullis_training.measuring.calibration import Calibration, load_calibration, load_score
from portcullis_training.measuring.evaluation import (
    Evaluation,
    OutsideSetFigures,
    load_evaluation,
)
from portcullis_training.measuring.predictions import Predict, of_readings
from portcullis_training.measuring.promises import with_promises
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.methods import Method
from portcullis_training.runs.directory import Run

ANY_SIZE = 224  # to see that examples decode, before the run's own size is known
_FILE_NAME = re.compile(FILE_NAME_PATTERN)
EXAMPLE_SUFFIXES = (".gif", ".jpeg", ".jpg", ".png", ".webp")
NUM_REAL_IMAGES = 64
"""Test images that parity is proven on, beside the extreme ones."""


def export(run: Run, models: Path, examples: Path | None = None, name: str | None = None) -> Bundle:
    """Write the next version of the run's bundle below `models`; one that cannot be served is never written.

    `name` is the bundle's, by default that of the run. `examples`: a folder of pictures that go along, or of such
    folders, one a kind, for people who try the model.
    """
    trained = open_trained(run)
    refuse_what_is_no_graph(trained.method)
    calibration = load_calibration(trained)
    measured = Measured(calibration, load_score(trained, calibration), load_evaluation(trained))
    written = write_measured(trained, measured, models, name=name, examples=examples)
    _keep_report(written, run)
    return written


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of a trained run when it is exported."""

    calibration: Calibration
    score: Score
    evaluation: Evaluation


def write_measured(
    trained: Trained, measured: Measured, models: Path, *, name: str | None = None, examples: Path | None = None
) -> Bundle:
    """Graph, manifest, report and examples as the next version of a bundle, proven by serving them."""
    config, image, calibration = trained.run.config, trained.splits.image_spec, measured.calibration
    classifier = copy.deepcopy(trained.classifier).cpu()  # parity is proven on the CPU, whatever trained it
    served = ServedClassifier(classifier, calibration.temperature, measured.score).eval()
    graph = to_onnx(served, image)
    name = name or config.name
    unproven = make_manifest(trained, calibration, measured.evaluation, served, (name, _next_version(models, name)))
    predict = of_readings(
        trained.readings_of, trained.method, calibration.temperature, measured.score, calibration.ablation
    )
    manifest = with_promises(unproven, predict("test", trained.splits.test), trained.splits.test.labels)
    files = {
        MODEL_FILE: graph,
        CONFIG_FILE: (portable_config(config).model_dump_json(indent=1) + "\n").encode(),
        **render_report(manifest, measured.evaluation, trained, predict),
        **read_examples(examples, image),
    }
    return write_bundle(models, manifest, files, check=lambda draft: _prove(draft, served, trained, predict))


def read_examples(folder: Path | None, image: ImageSpec) -> dict[str, bytes]:
    """The pictures of a folder, or of its sub-folders, one a kind, where it has none itself; other files stay behind.

    Each is proven to decode as the service will decode it, and to have a name that a bundle takes.
    """
    if folder is None:
        return {}
    found = _pictures(folder, "*") or _pictures(folder, "*/*")
    if not found:
        raise DataError(f"expected a folder with pictures ({', '.join(EXAMPLE_SUFFIXES)}), got {folder}")
    pictures = {f"examples/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in found}
    for name, picture in pictures.items():
        if not _FILE_NAME.match(name):
            raise DataError(f"{folder}: a bundle takes names of letters, digits, '.', '_', '-' only; rename {name!r}")
        decode(picture, image)
    return pictures


def check_destination(models: Path, examples: Path | None) -> None:
    """Refuse before hours of training what export would refuse after them."""
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write bundles to {models}: {error.strerror}") from None
    if not os.access(models, os.W_OK):
        raise ConfigError(f"cannot write bundles to {models}: it is read-only")
    read_examples(examples, ImageSpec(height=ANY_SIZE, width=ANY_SIZE))


def _pictures(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.suffix.lower() in EXAMPLE_SUFFIXES and path.is_file())


def refuse_what_is_no_graph(method: Method) -> None:
    """With the method's own reason."""
    if method.export_refusal is not None:
        raise ConfigError(f"{method.name} cannot be exported: {method.export_refusal}")


def make_manifest(
    trained: Trained, calibration: Calibration, evaluation: Evaluation, served: ServedClassifier, place: tuple[str, int]
) -> Manifest:
    """Everything about the graph that is not arithmetic. `place`: name and version."""
    config = trained.run.config
    expected = torch_outputs(served, self_test_images(trained.splits.image_spec))
    return Manifest(
        format_version=FORMAT_VERSION,
        name=place[0],
        version=place[1],
        created=datetime.now(UTC),
        labels=trained.splits.class_names,
        image=trained.splits.image_spec,
        method=MethodInfo(
            name=config.variant.replace("+fractional", ""),  # which has a field of its own
            backbone=config.backbone,
            fractional_regulariser=config.is_fractional,
            score=trained.method.score_name,
            score_temperature=calibration.score_temperature,
        ),
        score=served.score.info,
        temperature=calibration.temperature,
        calibration=calibration.scores,
        calibration_rows=calibration.rows,
        operating_points=calibration.operating_points,
        class_mix=calibration.class_mix,
        figures=_figures(evaluation),
        provenance=provenance_of(trained),
        self_test=SelfTest(
            probabilities=tuple(tuple(row) for row in expected.probabilities.tolist()),
            scores=tuple(expected.scores.tolist()),
            parts=tuple(tuple(row) for row in expected.parts.tolist()),
        ),
    )


def _prove(draft: Bundle, served: ServedClassifier, trained: Trained, predict: Predict) -> None:
    """Load the draft as the service does, warm it up, compare it with torch and with what evaluation measured."""
    engine = Engine(draft)
    engine.self_test()
    test = trained.splits.test
    chosen = np.linspace(0, len(test) - 1, min(NUM_REAL_IMAGES, len(test))).astype(np.int64)
    real = as_array(test.subset(chosen))
    images = np.concatenate([extreme_images(trained.splits.image_spec), real])
    check_parity(engine.run, served, images, draft.manifest.calibration)
    measured = predict("test", test)
    parts = np.stack([measured.parts[name][chosen] for name in draft.manifest.part_names], axis=1)
    expected = Outputs(measured.probabilities[chosen], measured.score[chosen], parts)
    check_measured(engine.run(real), expected, served.score.info, draft.manifest.calibration)


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


def _keep_report(bundle: Bundle, run: Run) -> None:
    """A copy beside the run, so that a person need not look into the bundle."""
    for file in bundle.manifest.files:
        if file == REPORT_FILE or file.startswith("plots/"):
            path = run.directory / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bundle.read(file))
