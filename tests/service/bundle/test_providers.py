"""In which order providers are tried, and with what they are set up."""

import pytest

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.providers import EngineOptions, device_environment, order, session_providers
from portcullis.errors import EngineError

IMAGE = ImageSpec(height=32, width=48)
DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("asked", "has_gpu_build", "fallback", "tried"),
    [
        (("auto",), False, False, ("cpu",)),
        (("auto",), True, False, ("cuda", "cpu")),
        (("cuda",), True, False, ("cuda",)),
        (("cuda",), True, True, ("cuda", "cpu")),
        (("cuda", "cpu"), True, True, ("cuda", "cpu")),
        (("tensorrt", "cuda"), True, False, ("tensorrt", "cuda")),
        (("cpu",), True, False, ("cpu",)),
        (("cuda",), False, False, ("cuda",)),
    ],
)
def test_providers_are_tried_in_the_order_asked_for_and_tensorrt_only_by_name(asked, has_gpu_build, fallback, tried):
    assert order(EngineOptions(asked, allow_fallback=fallback), has_gpu_build) == tried


@pytest.mark.parametrize("asked", [("rocm",), ("auto", "cpu"), ()])
def test_an_unknown_provider_is_refused(asked):
    with pytest.raises(EngineError, match="unknown provider"):
        order(EngineOptions(asked), has_gpu_build=True)


def test_a_gpu_computes_in_float32_unless_asked_otherwise():
    (name, settings), cpu = session_providers("cuda", EngineOptions(), IMAGE, DIGEST)
    assert (name, cpu) == ("CUDAExecutionProvider", ("CPUExecutionProvider", {}))
    assert (settings["device_id"], settings["use_tf32"]) == ("0", "0")
    assert session_providers("cuda", EngineOptions(gpu_tf32=True), IMAGE, DIGEST)[0][1]["use_tf32"] == "1"


def test_a_memory_limit_is_the_limit():
    limit = EngineOptions(gpu_memory_limit_bytes=2**30, max_batch=64)
    settings = session_providers("cuda", limit, IMAGE, DIGEST)[0][1]
    assert settings["gpu_mem_limit"] == str(2**28)  # for each of the sessions for 1, 8, 32 and 64
    assert session_providers("tensorrt", limit, IMAGE, DIGEST)[1][1]["gpu_mem_limit"] == str(2**30)
    assert settings["arena_extend_strategy"] == "kSameAsRequested"
    assert session_providers("tensorrt", limit, IMAGE, DIGEST)[0][1]["trt_max_workspace_size"] == "1073741824"


def test_cuda_graphs_are_asked_for_by_name_and_for_sessions_of_one_size():
    graphs = EngineOptions(gpu_cuda_graphs=True)
    assert "enable_cuda_graph" not in session_providers("cuda", EngineOptions(), IMAGE, DIGEST)[0][1]
    assert session_providers("cuda", graphs, IMAGE, DIGEST)[0][1]["enable_cuda_graph"] == "1"
    assert "enable_cuda_graph" not in session_providers("tensorrt", graphs, IMAGE, DIGEST)[1][1]


def test_tensorrt_plans_for_every_batch_that_will_come_and_leaves_the_rest_to_cuda():
    (name, settings), cuda, cpu = session_providers("tensorrt", EngineOptions(max_batch=128), IMAGE, DIGEST)
    assert (name, cuda[0], cpu[0]) == ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    assert settings["trt_profile_min_shapes"] == "images:1x32x48x3"
    assert settings["trt_profile_opt_shapes"] == settings["trt_profile_max_shapes"] == "images:128x32x48x3"
    assert settings["trt_fp16_enable"] == "False"
    alone = session_providers("tensorrt", EngineOptions(max_batch=1), IMAGE, DIGEST)[0][1]
    assert alone["trt_profile_max_shapes"] == "images:4x32x48x3", "the self-test's own batch must fit"


def test_two_graphs_never_share_a_cache_of_tensorrt(tmp_path):
    options = EngineOptions(tensorrt_cache=tmp_path)
    paths = [session_providers("tensorrt", options, IMAGE, digest)[0][1] for digest in (DIGEST, DIGEST[::-1])]
    assert len({settings["trt_engine_cache_path"] for settings in paths}) == 2
    assert all(settings["trt_timing_cache_path"] == settings["trt_engine_cache_path"] for settings in paths)
    assert "trt_engine_cache_path" not in session_providers("tensorrt", EngineOptions(), IMAGE, DIGEST)[0][1]


@pytest.mark.parametrize("device", ["3", "GPU-8f6d3c1e", "MIG-11c29e81"])
def test_a_process_sees_one_device_by_index_or_uuid(device):
    assert device_environment(device, gpu_tf32=False) == {
        "CUDA_VISIBLE_DEVICES": device,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    assert "NVIDIA_TF32_OVERRIDE" not in device_environment(device, gpu_tf32=True)
    assert device_environment(None, gpu_tf32=False) == {}
