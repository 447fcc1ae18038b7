"""The real GPU wheel: what a host with nothing but the driver does, and whether the wheel takes our options.

The wheel has 256 MB, so these tests run where it has been fetched before; .ci/run fetches it.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from portcullis.bundle.devices import num_cores
from tests import gpu_wheel
from tests.running import RunningService

pytestmark = pytest.mark.slow
MISSING = r"libcublas(Lt)?\.so\.13|cuTensorMapEncodeTiled"  # the first thing that a host without CUDA lacks
OPEN = """
import json, sys
from pathlib import Path
from portcullis.bundle import session
from portcullis.bundle.files import load_bundle
from portcullis.bundle.providers import EngineOptions, session_providers
from portcullis.errors import ProviderUnavailable

task = json.loads(sys.argv[1])

def with_more(*arguments):
    (name, settings), *rest = session_providers(*arguments)
    return [(name, settings | task["more"]), *rest]

session.session_providers = with_more
options = EngineOptions(**task["options"], tensorrt_cache=Path(task["cache"]))
try:
    session.open_session(load_bundle(Path(task["bundle"])), task["provider"], options)
    print("started")
except ProviderUnavailable as error:
    print(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_wheel.stub_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_wheel.stub_libraries(tmp_path_factory.mktemp("libraries"))


def test_a_host_with_nothing_but_the_driver_serves_on_its_cpu_and_says_so(models, driver, tmp_path):
    environment = gpu_wheel.environment(driver)
    with RunningService(models, tmp_path, "--workers", "auto", environment=environment) as service:
        assert len(service.workers()) == num_cores(), "the CPU's policy, not one worker a device"
        ready = httpx.get(f"{service.url}/readyz").json()
        assert ready == {"status": "ready", "provider": "cpu", "is_fallback": True}
        (version,) = httpx.get(f"{service.url}/v1/models/tiny").json()["versions"]
        assert (version["providers_asked"], version["providers"]) == (["auto"], ["cpu"])
        (reason,) = version["provider_refusals"]
        assert re.search(MISSING, reason)
        assert "/" not in reason, "a message shows no path of this machine"
        metrics = httpx.get(f"{service.url}/metrics").text
        assert 'portcullis_provider_fallback{asked="auto",model="tiny",provider="cpu",version="1"} 1.0' in metrics
    assert [line for line in service.lines if "cuda does not start here" in line and "running on cpu" in line]
    assert not [line for line in service.lines if "EP Error" in line or "Traceback" in line]


def test_a_gpu_asked_for_by_name_that_does_not_start_is_one_clear_line(models, driver, tmp_path):
    with pytest.raises(RuntimeError, match="did not start") as caught:
        RunningService(models, tmp_path, "--providers", "cuda", environment=gpu_wheel.environment(driver))
    _, *lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert re.fullmatch(rf"portcullis: cuda does not start here: .*({MISSING}).*", lines[0])


def test_each_device_is_tried_by_a_process_that_sees_no_other(models, driver, tmp_path):
    log = tmp_path / "seen"
    environment = gpu_wheel.environment(driver, STUB_DRIVER_LOG=str(log))
    flags = ["--device-ids", "1,MIG-3f", "--providers", "cuda,cpu"]
    with RunningService(models, tmp_path / "runtime", *flags, environment=environment) as service:
        (version,) = httpx.get(f"{service.url}/v1/models/tiny").json()["versions"]
    assert sorted(set(log.read_text().split())) == ["1", "MIG-3f"]
    assert [refusal.partition(":")[0] for refusal in version["provider_refusals"]] == ["device 1", "device MIG-3f"]


def opened(bundle: Path, libraries: Path, tmp_path: Path, provider: str, options: dict, **more: str) -> str:
    """What came of a session on a provider, in a process that has the wheel and the stand-in libraries."""
    task = {"provider": provider, "bundle": str(bundle), "cache": str(tmp_path), "options": options, "more": more}
    done = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(task)],
        env=gpu_wheel.environment(libraries),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("provider", gpu_wheel.PROVIDERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpu_memory_limit_bytes": 2**33, "gpu_tf32": True, "tensorrt_fp16": True, "max_batch": 128}
        | {"gpu_cuda_graphs": True},
    ],
    ids=["defaults", "everything"],
)
def test_every_option_passes_the_wheels_parser(models, libraries, tmp_path, provider, options):
    """Behind the parser comes the first call to a device, which the stand-in refuses."""
    said = opened(models / "tiny" / "1", libraries, tmp_path, provider, options)
    assert said == f"{provider} does not start here: CUDA failure 100: no device"


@pytest.mark.parametrize(
    ("provider", "more", "named"),
    [
        ("cuda", {"no_such_option": "1"}, 'Unknown provider option: "no_such_option"'),
        ("cuda", {"cudnn_conv_algo_search": "FASTEST"}, 'Failed to parse provider option "cudnn_conv_algo_search"'),
        ("cuda", {"use_tf32": "maybe"}, 'Failed to parse provider option "use_tf32"'),
        ("tensorrt", {"no_such_option": "1"}, "Invalid TensorRT EP option: no_such_option"),
        ("tensorrt", {"trt_fp16_enable": "1"}, "should be 'True' or 'False'"),
    ],
)
def test_the_parser_would_refuse_an_option_that_it_does_not_know_or_a_wrong_type(
    models, libraries, tmp_path, provider, more, named
):
    assert named in opened(models / "tiny" / "1", libraries, tmp_path, provider, {}, **more)
