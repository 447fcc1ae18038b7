"""Export: the graph answers as torch does, and what cannot be served is never written."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from service.bundle import ImageSpec, load_bundle
from service.engine import Engine, Outputs
from service.errors import BadImage, BundleError
from service.preprocess import Pixels
from training import backbones, export, methods
from training.classifier import Classifier
from training.data import to_float
from training.errors import DataError
from training.evaluate import evaluate_bundle, load_evaluation
from training.graph import ServedClassifier, to_onnx
from training.parity import BATCH_SIZES, ParityError, check_measured, check_parity, extreme_images, torch_outputs
from training.predictions import from_logits
from training.runs import Run
from training.trained import open_trained

pytestmark = pytest.mark.slow

IMAGE = ImageSpec(height=16, width=20)


def served_classifier(name: str, score_temperature: float = 1.0) -> ServedClassifier:
    """With batch-norm statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    backbone = backbones.build("small")
    head = methods.find(name).make_head(backbone.num_features, 5)
    classifier = Classifier(backbone, head, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
    for _ in range(5):
        classifier(torch.rand(32, 3, IMAGE.height, IMAGE.width))
    return ServedClassifier(classifier, methods.find(name), 0.05, score_temperature).eval()


def session_of(graph: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def runner(graph: bytes) -> object:
    session = session_of(graph)
    return lambda images: Outputs(*session.run(["probabilities", "score"], {"images": images}))


def mixed_images() -> Pixels:
    noise = np.random.default_rng(1).integers(0, 256, (60, IMAGE.height, IMAGE.width, 3), dtype=np.uint8)
    return np.concatenate([extreme_images(IMAGE), noise])


@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
@pytest.mark.parametrize(
    ("name", "score_temperature"), [("dismax", 1), ("dismax", 0.05), ("isomaxplus", 1), ("softmax", 1)]
)
def test_the_graph_answers_as_torch_does(name: str, score_temperature: float, batch_size: int) -> None:
    served = served_classifier(name, score_temperature)
    images = np.resize(mixed_images(), (128, IMAGE.height, IMAGE.width, 3))
    session = session_of(to_onnx(served, IMAGE))
    for start in range(0, 128 - batch_size + 1, batch_size):
        batch = images[start : start + batch_size]
        probabilities, score = session.run(["probabilities", "score"], {"images": batch})
        with torch.inference_mode():
            expected_probabilities, expected_score = (output.numpy() for output in served(torch.from_numpy(batch)))
        np.testing.assert_allclose(probabilities, expected_probabilities, atol=1e-4)
        np.testing.assert_allclose(score, expected_score, atol=1e-4)
        np.testing.assert_array_equal(probabilities.argmax(axis=1), expected_probabilities.argmax(axis=1))


def test_the_graph_is_one_file_with_free_n_and_folded_batch_norms() -> None:
    model = onnx.load_from_string(to_onnx(served_classifier("dismax"), IMAGE))
    operators = [node.op_type for node in model.graph.node]
    assert "BatchNormalization" not in operators
    assert "Identity" not in operators
    assert not any(onnx.external_data_helper.uses_external_data(tensor) for tensor in model.graph.initializer)
    (images,) = model.graph.input
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    first, *rest = images.type.tensor_type.shape.dim
    assert first.dim_param == "N"
    assert [dimension.dim_value for dimension in rest] == [IMAGE.height, IMAGE.width, 3]
    assert str(Path(__file__).parent.parent.parent).encode() not in model.SerializeToString()


def test_parity_sees_every_image_at_every_batch_size() -> None:
    served = served_classifier("dismax")
    sizes = []

    def run(images: Pixels) -> Outputs:
        sizes.append(len(images))
        return torch_outputs(served, images)

    assert check_parity(run, served, mixed_images()) == 0
    assert set(sizes) == set(BATCH_SIZES)


@pytest.mark.parametrize("name", ["dismax", "isomaxplus", "softmax"])
@pytest.mark.parametrize("score_temperature", [1.0, 0.05])
def test_the_served_classifier_answers_what_evaluation_measures(name: str, score_temperature: float) -> None:
    served = served_classifier(name, score_temperature)
    images = torch.from_numpy(mixed_images())
    with torch.inference_mode():
        logits = served.classifier(to_float(images)).numpy()
    measured = from_logits(logits, methods.find(name), 0.05, score_temperature)
    answered = torch_outputs(served, images.numpy())
    np.testing.assert_allclose(answered.probabilities, measured.probabilities, atol=1e-5)
    np.testing.assert_allclose(answered.scores, measured.score, atol=1e-5, rtol=1e-5)


def test_scores_other_than_the_measured_ones_are_refused() -> None:
    outputs = torch_outputs(served_classifier("dismax"), mixed_images())
    check_measured(outputs, outputs)
    with pytest.raises(ParityError, match="scores that the run was evaluated with"):
        check_measured(Outputs(outputs.probabilities, outputs.scores * 1.1), outputs)


def test_another_temperature_is_no_parity() -> None:
    other = served_classifier("dismax")
    other.temperature = 0.051
    with pytest.raises(ParityError, match="nothing was written"):
        check_parity(runner(to_onnx(other, IMAGE)), served_classifier("dismax"), mixed_images())  # type: ignore[arg-type]


def test_nan_is_no_parity() -> None:
    served = served_classifier("dismax")

    def run(images: Pixels) -> Outputs:
        outputs = torch_outputs(served, images)
        return Outputs(outputs.probabilities, np.full_like(outputs.scores, np.nan))

    with pytest.raises(ParityError):
        check_parity(run, served, mixed_images())


def test_a_bundle_serves_the_figures_that_the_run_measured(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path / "models")
    loaded = load_bundle(tmp_path / "models" / "tiny-digits" / "1")
    Engine(loaded).self_test()
    served = evaluate_bundle(bundle, evaluated_run)
    measured = load_evaluation(open_trained(evaluated_run))
    assert served.inside.accuracy == measured.inside.accuracy == loaded.manifest.figures.accuracy
    assert served.inside.ece == pytest.approx(measured.inside.ece, abs=1e-3)
    for name, figures in served.outside.items():
        expected = measured.outside[name].by_score["mmles"]
        assert figures.by_score["mmles"].auroc_inside_positive == pytest.approx(
            expected.auroc_inside_positive, abs=1e-4
        )
        assert figures.caught["accept95"] == pytest.approx(measured.outside[name].caught["accept95"], abs=2e-3)


def test_a_second_export_is_the_next_version_and_the_first_stays(evaluated_run: Run, tmp_path: Path) -> None:
    first = export.export(evaluated_run, tmp_path)
    second = export.export(evaluated_run, tmp_path)
    assert (first.manifest.version, second.manifest.version) == (1, 2)
    assert load_bundle(first.path).manifest.files["model.onnx"] == load_bundle(second.path).manifest.files["model.onnx"]


def test_a_graph_that_differs_from_torch_is_never_written(
    evaluated_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_wrong_onnx(served: ServedClassifier, image: ImageSpec) -> bytes:
        wrong = ServedClassifier(served.classifier, served.method, served.temperature * 1.003, 1.0)
        return to_onnx(wrong, image)

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
    assert f"| **MMLES** | {100 * figures.outside['shuffled'].auroc:.1f} |" in text
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
