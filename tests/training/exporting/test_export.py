"""Export: the graph answers as torch does, and what cannot be served is never written."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from portcullis.bundle import shift
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import summarise
from portcullis.bundle.manifest import ImageSpec, ScoreInfo
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.preprocess import Pixels
from portcullis.errors import BadImage, BundleError
from portcullis_training import backbones, methods
from portcullis_training.data import to_float
from portcullis_training.errors import ConfigError, DataError
from portcullis_training.exporting import export
from portcullis_training.exporting.parity import (
    BATCH_SIZES,
    ParityError,
    check_measured,
    check_parity,
    extreme_images,
    torch_outputs,
)
from portcullis_training.exporting.report import score_title
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.graph.score import Score, one_part, own_score
from portcullis_training.graph.served import ServedClassifier, to_onnx
from portcullis_training.measuring import part_constants
from portcullis_training.measuring.calibration import calibrate
from portcullis_training.measuring.evaluation import load_evaluation
from portcullis_training.measuring.predictions import from_readings
from portcullis_training.measuring.readings import Readings
from portcullis_training.measuring.served import evaluate_bundle
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run
from tests.documents.pages import unexplained

pytestmark = pytest.mark.slow

IMAGE = ImageSpec(height=16, width=20)
CALIBRATION = summarise(np.random.default_rng(0).normal(-14, 0.4, 2000).tolist())


def served_classifier(name: str, score_temperature: float = 1.0) -> ServedClassifier:
    """With batch-norm statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    backbone = backbones.build("small")
    head = methods.find(name).make_head(backbone.num_features, 5)
    classifier = Classifier(backbone, head, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
    for _ in range(5):
        classifier(torch.rand(32, 3, IMAGE.height, IMAGE.width))
    own = methods.find(name).score_name
    return ServedClassifier(classifier, 0.05, own_score(own, score_temperature)).eval()


WEIGHTS = (0.5, 1.0, 0.3, 0.2, 0.4)


def with_fitted_score(served: ServedClassifier, weights: tuple[float, ...] = WEIGHTS) -> ServedClassifier:
    """All parts, weighed by hand, with constants from noise."""
    random = np.random.default_rng(0)
    images = torch.from_numpy(random.integers(0, 256, (300, IMAGE.height, IMAGE.width, 3), dtype=np.uint8))
    with torch.inference_mode():
        reading = served.classifier.eval().read(to_float(images))
    constants = {
        "norm_gap": {},
        "features": part_constants.of_classes(reading.features.numpy(), reading.logits.argmax(dim=1).numpy()),
        "middle": part_constants.of_all(reading.middle.numpy()),
        "neighbours": part_constants.bank(reading.features.numpy(), random),
    }
    own = served.score.own
    parts = Score(one_part((own.name, *constants), own.name, "noise"), own, constants)(reading)[1].detach().numpy()
    info = ScoreInfo(
        name="fitted", parts=(own.name, *constants), fitted_on="noise", weights=weights,
        means=tuple(parts.mean(axis=0).tolist()), deviations=tuple(parts.std(axis=0).tolist()),
    )  # fmt: skip
    return ServedClassifier(served.classifier, served.temperature, Score(info, own, constants)).eval()


def session_of(graph: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def runner(graph: bytes) -> object:
    session = session_of(graph)

    def run(images: Pixels) -> Outputs:
        return Outputs(*session.run(["probabilities", "score", "parts"], {"images": images}))

    return run


def mixed_images() -> Pixels:
    noise = np.random.default_rng(1).integers(0, 256, (60, IMAGE.height, IMAGE.width, 3), dtype=np.uint8)
    return np.concatenate([extreme_images(IMAGE), noise])


@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
@pytest.mark.parametrize(
    ("name", "score_temperature"), [("dismax", 1), ("dismax", 0.05), ("isomaxplus", 1), ("softmax", 1)]
)
@pytest.mark.parametrize("is_fitted", [False, True])
def test_the_graph_answers_as_torch_does(name: str, score_temperature: float, batch_size: int, is_fitted: bool) -> None:
    served = served_classifier(name, score_temperature)
    served = with_fitted_score(served) if is_fitted else served
    images = np.resize(mixed_images(), (128, IMAGE.height, IMAGE.width, 3))
    session = session_of(to_onnx(served, IMAGE))
    for start in range(0, 128 - batch_size + 1, batch_size):
        batch = images[start : start + batch_size]
        probabilities, score, parts = session.run(["probabilities", "score", "parts"], {"images": batch})
        with torch.inference_mode():
            expected_probabilities, *expected = (output.numpy() for output in served(torch.from_numpy(batch)))
        np.testing.assert_allclose(probabilities, expected_probabilities, atol=1e-4)
        np.testing.assert_allclose(score, expected[0], atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(parts, expected[1], atol=1e-4, rtol=1e-3)
        np.testing.assert_array_equal(probabilities.argmax(axis=1), expected_probabilities.argmax(axis=1))


def test_two_more_parts_in_the_score_are_ten_more_operators_in_the_graph() -> None:
    """Of a single small image each operator costs microseconds to start, and its arithmetic nothing."""
    own = served_classifier("dismax")
    fitted = with_fitted_score(own, weights=(0.0, 1.0, 0.0, 0.2, 0.0))
    alone, together = (len(onnx.load_from_string(to_onnx(served, IMAGE)).graph.node) for served in (own, fitted))
    assert fitted.score.info.parts == ("mmles", "norm_gap", "middle")
    assert together - alone <= 10


def test_the_graph_is_one_file_with_free_n_and_folded_batch_norms() -> None:
    model = onnx.load_from_string(to_onnx(served_classifier("dismax"), IMAGE))
    operators = [node.op_type for node in model.graph.node]
    assert "BatchNormalization" not in operators
    assert "Identity" not in operators
    assert operators[:2] == ["Cast", "Transpose"], "TensorRT takes bytes only where a cast follows at once"
    assert sum("images" in node.input for node in model.graph.node) == 1
    assert not any(onnx.external_data_helper.uses_external_data(tensor) for tensor in model.graph.initializer)
    (images,) = model.graph.input
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    first, *rest = images.type.tensor_type.shape.dim
    assert first.dim_param == "N"
    assert [dimension.dim_value for dimension in rest] == [IMAGE.height, IMAGE.width, 3]
    assert str(Path(__file__).parents[3]).encode() not in model.SerializeToString()


def test_parity_sees_every_image_at_every_batch_size() -> None:
    served = served_classifier("dismax")
    sizes = []

    def run(images: Pixels) -> Outputs:
        sizes.append(len(images))
        return torch_outputs(served, images)

    assert check_parity(run, served, mixed_images(), CALIBRATION) == 0
    assert set(sizes) == set(BATCH_SIZES)


@pytest.mark.parametrize("name", ["dismax", "isomaxplus", "softmax"])
@pytest.mark.parametrize("score_temperature", [1.0, 0.05])
def test_the_served_classifier_answers_what_evaluation_measures(name: str, score_temperature: float) -> None:
    served = served_classifier(name, score_temperature)
    images = torch.from_numpy(mixed_images())
    with torch.inference_mode():
        readings = Readings(*(part.numpy() for part in served.classifier.read(to_float(images))))
    measured = from_readings(readings, methods.find(name), 0.05, served.score)
    answered = torch_outputs(served, images.numpy())
    np.testing.assert_allclose(answered.probabilities, measured.probabilities, atol=1e-5)
    np.testing.assert_allclose(answered.scores, measured.score, atol=1e-5, rtol=1e-5)


def test_scores_other_than_the_measured_ones_are_refused() -> None:
    served = served_classifier("dismax")
    outputs, score = torch_outputs(served, mixed_images()), served.score.info
    tolerated = shift.tolerated(CALIBRATION)
    near, far = (replace(outputs, scores=outputs.scores + share * tolerated) for share in (0.9, 1.1))
    check_measured(near, outputs, score, CALIBRATION)
    with pytest.raises(ParityError, match="scores that the run was evaluated with"):
        check_measured(far, outputs, score, CALIBRATION)
    with pytest.raises(ParityError, match="parts that the run was evaluated with"):
        check_measured(replace(outputs, parts=1.1 * outputs.parts), outputs, score, CALIBRATION)


def test_scores_that_lie_close_together_must_be_met_more_closely() -> None:
    served = served_classifier("dismax")
    middle = float(np.median(torch_outputs(served, mixed_images()).scores))
    narrow = summarise([middle + 1e-4 * (score + 14) for score in CALIBRATION.scores])

    def run(images: Pixels) -> Outputs:
        outputs = torch_outputs(served, images)
        return Outputs(outputs.probabilities, outputs.scores + np.float32(5e-5), outputs.parts)

    assert check_parity(run, served, mixed_images(), CALIBRATION) < 1e-4
    with pytest.raises(ParityError, match="in a score in a batch of 1"):
        check_parity(run, served, mixed_images(), narrow)


def test_the_last_digit_of_a_part_that_hardly_varies_is_no_other_graph() -> None:
    """After a few steps of training a score's parts are nearly the same for all images, and what sets them apart is
    rounding; the score divides it by their small deviation."""
    served = with_fitted_score(served_classifier("dismax"))
    own = served.score.info
    alike = own.model_copy(update={"deviations": (1e-3 * own.deviations[0], *own.deviations[1:])})
    served.score = Score(alike, served.score.own, served.score.constants)
    scores = torch_outputs(served, mixed_images()).scores
    calibration = summarise(sorted(scores.tolist()))

    def run(images: Pixels, ulps: int) -> Outputs:
        outputs = torch_outputs(served, images)
        by = ulps * np.spacing(outputs.parts[:, 0]) * alike.weights[0] / alike.deviations[0]
        return replace(outputs, scores=(outputs.scores + by).astype(np.float32))

    assert np.abs(run(mixed_images(), 1).scores - scores).max() > 1e-4
    check_parity(partial(run, ulps=1), served, mixed_images(), calibration)
    with pytest.raises(ParityError, match="score"):
        check_parity(partial(run, ulps=10_000), served, mixed_images(), calibration)


def test_another_temperature_is_no_parity() -> None:
    other = served_classifier("dismax")
    other.temperature = 0.051
    with pytest.raises(ParityError, match="nothing was written"):
        check_parity(runner(to_onnx(other, IMAGE)), served_classifier("dismax"), mixed_images(), CALIBRATION)  # type: ignore[arg-type]


def test_nan_is_no_parity() -> None:
    served = served_classifier("dismax")

    def run(images: Pixels) -> Outputs:
        outputs = torch_outputs(served, images)
        return Outputs(outputs.probabilities, np.full_like(outputs.scores, np.nan), outputs.parts)

    with pytest.raises(ParityError):
        check_parity(run, served, mixed_images(), CALIBRATION)


def test_a_bundle_serves_the_figures_that_the_run_measured(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path / "models")
    loaded = load_bundle(tmp_path / "models" / "tiny-digits" / "1")
    Engine(loaded).self_test()
    served = evaluate_bundle(bundle)
    measured = load_evaluation(open_trained(evaluated_run))
    assert served.inside.accuracy == measured.inside.accuracy == loaded.manifest.figures.accuracy
    assert served.inside.ece == pytest.approx(measured.inside.ece, abs=1e-3)
    for name, figures in served.outside.items():
        for score in ("fitted", *loaded.manifest.part_names):
            expected = measured.outside[name].by_score[score].auroc_inside_positive
            assert figures.by_score[score].auroc_inside_positive == pytest.approx(expected, abs=1e-4)
        assert figures.caught["accept95"] == pytest.approx(measured.outside[name].caught["accept95"], abs=2e-3)


def test_figures_of_another_score_do_not_ship(evaluated_run: Run, tmp_path: Path) -> None:
    run = Run(evaluated_run.directory, evaluated_run.config.model_copy(update={"score_temperature": "calibrated"}))
    calibrate(run)
    with pytest.raises(ConfigError, match=r"figures.json was computed from other calibration .* evaluate again"):
        export.export(run, tmp_path)


def test_figures_against_other_outside_sets_do_not_ship(evaluated_run: Run, tmp_path: Path) -> None:
    run = Run(evaluated_run.directory, evaluated_run.config.model_copy(update={"outside": ("constant",)}))
    with pytest.raises(ConfigError, match="other outside sets"):
        export.export(run, tmp_path)


def test_a_second_export_is_the_next_version_and_the_first_stays(evaluated_run: Run, tmp_path: Path) -> None:
    first = export.export(evaluated_run, tmp_path)
    second = export.export(evaluated_run, tmp_path)
    assert (first.manifest.version, second.manifest.version) == (1, 2)
    assert load_bundle(first.path).manifest.files["model.onnx"] == load_bundle(second.path).manifest.files["model.onnx"]


def test_a_graph_that_differs_from_torch_is_never_written(
    evaluated_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_wrong_onnx(served: ServedClassifier, image: ImageSpec) -> bytes:
        return to_onnx(ServedClassifier(served.classifier, served.temperature * 1.003, served.score), image)

    monkeypatch.setattr(export, "to_onnx", to_wrong_onnx)
    with pytest.raises((ParityError, BundleError)):
        export.export(evaluated_run, tmp_path / "models")
    assert list((tmp_path / "models").rglob("*.onnx")) == []
    assert list((tmp_path / "models" / "tiny-digits").iterdir()) == []


def test_a_bundle_holds_no_path_of_this_machine(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path)
    for path in bundle.path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(tmp_path).encode() not in content
            assert str(Path.home()).encode() + b"/" not in content


def test_the_report_states_the_figures_and_shows_its_plots(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path)
    text = (bundle.path / "report.md").read_text()
    figures = bundle.manifest.figures
    assert f"{figures.accuracy:.2%}" in text
    assert f"{figures.ece:.4f}" in text
    assert f"| **fitted score** | {100 * figures.outside['shuffled'].auroc:.1f} |" in text
    assert bundle.manifest.score is not None
    for part, weight in zip(bundle.manifest.score.parts, bundle.manifest.score.weights, strict=True):
        assert f"| {score_title(part)} | {weight:.2f} |" in text
        assert f"| fitted score without {score_title(part)} |" in text
    assert unexplained(text) == [] and "## In-distribution" in text and "## Out-of-distribution (OOD)" in text
    for file in ("plots/reliability.png", "plots/scores.png", "plots/risk_coverage.png", "plots/mean_logits.png"):
        assert f"]({file})" in text
        assert (bundle.path / file).read_bytes().startswith(b"\x89PNG")
    assert (evaluated_run.directory / "report.md").read_text() == text


def test_pictures_go_along_and_a_folder_without_any_is_refused(evaluated_run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    with pytest.raises(DataError, match="expected a folder with pictures"):
        export.export(evaluated_run, tmp_path, folder)
    (folder / "README.md").write_text("where they come from")
    Image.new("RGB", (30, 20), "red").save(folder / "red.png")
    bundle = export.export(evaluated_run, tmp_path, folder)
    assert [file for file in bundle.manifest.files if file.startswith("examples/")] == ["examples/red.png"]
    assert bundle.read("examples/red.png") == (folder / "red.png").read_bytes()
    (folder / "broken.png").write_bytes(b"no picture")
    with pytest.raises(BadImage):
        export.export(evaluated_run, tmp_path, folder)


def test_pictures_may_lie_in_a_folder_a_kind_as_the_console_titles_them(tmp_path: Path) -> None:
    for file in ("familiar/red.png", "strange/plaid.png", "strange/deeper/none.png"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), "red").save(tmp_path / file)
    assert list(export.read_examples(tmp_path, IMAGE)) == ["examples/familiar/red.png", "examples/strange/plaid.png"]
    Image.new("RGB", (30, 20), "red").save(tmp_path / "cat.png")
    assert list(export.read_examples(tmp_path, IMAGE)) == ["examples/cat.png"], "folders beside pictures are not kinds"
