import numpy as np
import pytest
from onnx import TensorProto, helper

from service.bundle import load_bundle, write_bundle
from service.engine import Engine, EngineOptions, choose_providers, provider_options, self_test_images, usable_providers
from service.errors import BundleError, EngineError
from tests import tiny

GPU_MACHINE = ("tensorrt", "cuda", "cpu")


@pytest.mark.parametrize(
    ("asked", "usable", "fallback", "chosen"),
    [
        (["auto"], ("cpu",), False, ("cpu",)),
        (["auto"], ("cuda", "cpu"), False, ("cuda", "cpu")),
        (["auto"], GPU_MACHINE, False, GPU_MACHINE),
        (["cuda"], GPU_MACHINE, False, ("cuda", "cpu")),
        (["cuda", "tensorrt"], GPU_MACHINE, False, ("cuda", "tensorrt", "cpu")),
        (["cpu"], GPU_MACHINE, False, ("cpu",)),
        (["tensorrt", "cuda"], ("cuda", "cpu"), True, ("cuda", "cpu")),
        (["cuda"], ("cpu",), True, ("cpu",)),
    ],
)
def test_providers_are_chosen_in_the_order_asked_for(asked, usable, fallback, chosen):
    assert choose_providers(asked, usable, fallback) == chosen


def test_a_gpu_that_is_not_there_is_an_error_unless_fallback_is_allowed():
    with pytest.raises(EngineError, match="cuda was asked for, but only cpu can be used here"):
        choose_providers(["cuda"], ("cpu",), allow_fallback=False)


@pytest.mark.parametrize("asked", [["rocm"], ["auto", "cpu"], []])
def test_an_unknown_provider_is_refused(asked):
    with pytest.raises(EngineError, match="unknown provider"):
        choose_providers(asked, GPU_MACHINE, allow_fallback=True)


def test_provider_settings_reach_onnxruntime(tmp_path):
    options = EngineOptions(device_id=3, gpu_memory_limit_bytes=2**30, tensorrt_cache=tmp_path)
    assert provider_options("cuda", options) == (
        "CUDAExecutionProvider",
        {"device_id": "3", "gpu_mem_limit": "1073741824"},
    )
    name, settings = provider_options("tensorrt", options)
    assert name == "TensorrtExecutionProvider"
    assert settings["trt_engine_cache_path"] == str(tmp_path)
    assert settings["trt_max_workspace_size"] == "1073741824"
    assert provider_options("cpu", options) == ("CPUExecutionProvider", {})


def test_this_machine_can_always_use_its_cpu():
    assert usable_providers()[-1] == "cpu"


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_the_engine_answers_as_the_formula_does(bundle, batch):
    images = np.random.default_rng(0).integers(0, 256, (batch, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    outputs = Engine(load_bundle(bundle.path)).run(images)
    probabilities, scores = tiny.answers(images)
    np.testing.assert_allclose(outputs.probabilities, probabilities, atol=1e-5)
    np.testing.assert_allclose(outputs.scores, scores, atol=1e-5)


def test_a_sound_bundle_passes_its_self_test(models):
    engine = Engine(load_bundle(models / "tiny" / "1"))
    engine.self_test()
    assert engine.providers[-1] == "cpu"


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
