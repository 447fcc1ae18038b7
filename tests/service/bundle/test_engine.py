"""The engine on the CPU: real graphs, real sessions."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from portcullis.bundle import shift
from portcullis.bundle.engine import Engine, start
from portcullis.bundle.files import load_bundle, write_bundle
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.self_test import self_test_images
from portcullis.bundle.session import has_gpu_build
from portcullis.errors import BundleError, EngineError, ProviderUnavailable
from tests import tiny

on_a_cpu_build = pytest.mark.skipif(has_gpu_build(), reason="onnxruntime's build for GPUs is installed")


@on_a_cpu_build
def test_a_provider_that_is_not_in_this_build_is_refused_by_name_and_passed_over_where_another_may_stand_in(models):
    bundle = load_bundle(models / "tiny" / "1")
    with pytest.raises(ProviderUnavailable, match="cuda does not start here: this is onnxruntime's build for CPUs"):
        start(bundle, EngineOptions(("cuda",)))
    engine = start(bundle, EngineOptions(("tensorrt", "cuda"), allow_fallback=True))
    assert (engine.provider, engine.asked) == ("cpu", ("tensorrt", "cuda"))
    assert [refusal.split()[0] for refusal in engine.refusals] == ["tensorrt", "cuda"]


@on_a_cpu_build
def test_auto_runs_on_the_cpu_of_a_build_for_cpus_and_calls_it_no_fallback(models):
    engine = start(load_bundle(models / "tiny" / "1"))
    assert (engine.provider, engine.refusals) == ("cpu", ())


def test_a_bundle_that_is_broken_is_not_blamed_on_the_provider(tmp_path):
    bundle = write_bundle(tmp_path, tiny.manifest(), {"model.onnx": b"not a graph"})
    with pytest.raises(BundleError, match="onnxruntime refuses the graph"):
        start(bundle, EngineOptions(("cuda", "cpu")))


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_the_engine_answers_as_the_formula_does(bundle, batch):
    images = np.random.default_rng(0).integers(0, 256, (batch, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    outputs = Engine(load_bundle(bundle.path)).run(images)
    probabilities, scores = tiny.answers(images)
    np.testing.assert_allclose(outputs.probabilities, probabilities, atol=1e-5)
    np.testing.assert_allclose(outputs.scores, scores, atol=1e-5)
    np.testing.assert_array_equal(outputs.parts, outputs.scores[:, None])  # the one part of a graph of format 1


@pytest.mark.parametrize("batch", [1, 7])
def test_a_graph_of_format_2_answers_the_fitted_score_and_its_parts(tmp_path, batch):
    images = np.random.default_rng(0).integers(0, 256, (batch, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    engine = Engine(tiny.write_fitted(tmp_path))
    engine.self_test()
    outputs = engine.run(images)
    np.testing.assert_allclose(outputs.parts, tiny.parts_of(images), atol=1e-5)
    np.testing.assert_allclose(outputs.scores, tiny.fitted_scores(tiny.parts_of(images)), rtol=1e-4)


def test_parts_that_differ_from_those_of_the_export_are_refused(tmp_path):
    manifest = tiny.fitted_manifest()
    parts = tuple((mmles, middle + 0.01) for mmles, middle in manifest.self_test.parts)
    moved = manifest.model_copy(update={"self_test": manifest.self_test.model_copy(update={"parts": parts})})
    engine = Engine(write_bundle(tmp_path, moved, {"model.onnx": tiny.graph(format_version=2)}))
    with pytest.raises(BundleError, match="self-test parts differ"):
        engine.self_test()


def test_a_graph_of_another_format_than_its_manifest_says_is_refused(tmp_path):
    with pytest.raises(BundleError, match=r"expected graph outputs \('probabilities', 'score', 'parts'\)"):
        Engine(write_bundle(tmp_path, tiny.fitted_manifest(), {"model.onnx": tiny.graph()}))


def test_a_sound_bundle_passes_its_self_test(models):
    engine = Engine(load_bundle(models / "tiny" / "1"))
    engine.self_test()
    assert engine.providers == ("cpu",)
    assert engine.shifts.score < 1e-5


def test_the_shift_of_every_part_and_of_the_odds_is_measured(tmp_path):
    manifest = tiny.fitted_manifest()
    parts = tuple((mmles + 1e-3, middle) for mmles, middle in manifest.self_test.parts)
    [black, *others] = manifest.self_test.probabilities
    black = (black[0] + 1e-3, *black[1:])  # of three equal ones it is the answer then
    changes = {"parts": parts, "probabilities": (black, *others)}
    moved = manifest.model_copy(update={"self_test": manifest.self_test.model_copy(update=changes)})
    engine = Engine(write_bundle(tmp_path, moved, {"model.onnx": tiny.graph(format_version=2)}))
    engine.self_test()
    assert engine.shifts.parts == pytest.approx((1e-3, 0), abs=2e-4)
    assert engine.shifts.log_odds == pytest.approx(1e-3 / (black[0] * (1 - black[0])), rel=0.05)


def shifted(manifest, difference):
    """The manifest of an export whose self-test scored otherwise."""
    scores = tuple(score + difference for score in manifest.self_test.scores)
    return manifest.model_copy(update={"self_test": manifest.self_test.model_copy(update={"scores": scores})})


@pytest.mark.parametrize("direction", [-1, 1])
def test_scores_may_differ_from_the_exports_only_while_the_gates_promise_stands(tmp_path, direction):
    tolerated = shift.tolerated(tiny.manifest().calibration)
    near, far = (shifted(tiny.manifest(), direction * part * tolerated) for part in (0.9, 1.1))
    engine = Engine(write_bundle(tmp_path / "near", near, {"model.onnx": tiny.graph()}))
    engine.self_test()
    assert engine.shifts.score == pytest.approx(0.9 * tolerated, rel=0.05)
    with pytest.raises(BundleError, match=r"scores differ .* accept95 rejects could move by more than 0\.4%"):
        Engine(write_bundle(tmp_path / "far", far, {"model.onnx": tiny.graph()})).self_test()


def test_an_engine_that_computes_something_else_fails_the_self_test(tmp_path):
    bundle = write_bundle(tmp_path, tiny.manifest(), {"model.onnx": tiny.graph(sharpness=1.2)})
    with pytest.raises(BundleError, match="self-test probabilities differ"):
        Engine(bundle).self_test()


def test_a_wrong_input_is_an_engine_error_and_the_engine_goes_on(models):
    engine = Engine(load_bundle(models / "tiny" / "1"))
    with pytest.raises(EngineError, match="failed on a batch of 2"):
        engine.run(np.zeros((2, 5, 5, 3), np.uint8))
    assert engine.run(np.zeros((2, tiny.SIZE, tiny.SIZE, 3), np.uint8)).scores.shape == (2,)


def graph_of(node_type, element):
    images = helper.make_tensor_value_info("images", element, ["N", tiny.SIZE, tiny.SIZE, 3])
    score = helper.make_tensor_value_info("score", element, ["N", tiny.SIZE, tiny.SIZE, 3])
    body = helper.make_graph([helper.make_node(node_type, ["images"], ["score"])], "odd", [images], [score])
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


@pytest.mark.parametrize(
    ("graph", "named"),
    [
        (b"not a graph", "onnxruntime refuses the graph"),
        (graph_of("Identity", TensorProto.UINT8), "expected graph outputs"),
        (graph_of("Identity", TensorProto.FLOAT), "expected graph input images of uint8"),
        (tiny.graph(size=16), r"expected images \[N, 8, 8, 3\]"),
    ],
)
def test_a_graph_that_is_not_the_contract_is_refused(tmp_path, graph, named):
    bundle = write_bundle(tmp_path, tiny.manifest(), {"model.onnx": graph})
    with pytest.raises(BundleError, match=named):
        Engine(bundle)


def test_nan_on_the_self_test_is_refused(tmp_path):
    bundle = write_bundle(tmp_path, tiny.manifest(), {"model.onnx": tiny.graph(sharpness=float("nan"))})
    with pytest.raises(BundleError, match="NaN or infinity"):
        Engine(bundle).self_test()


def test_the_self_test_images_are_the_same_everywhere():
    images = self_test_images(tiny.manifest().image)
    assert images.shape == (4, tiny.SIZE, tiny.SIZE, 3)
    assert images.sum(axis=(1, 2, 3)).tolist() == [0, 48960, 24385, 24067]
