"""The real onnxruntime-gpu wheel beside this environment, and libraries that stand in for NVIDIA's.

The wheel is unpacked into a directory of its own, which goes first on PYTHONPATH: everything else is what the tests run
with. A stand-in driver is enough to be a host "with nothing but the driver". With a stand-in for each library that the
wheel links, made from the symbols that it asks for, the wheel gets as far as its first call to a device: behind the
parser of provider options, and before anything that needs a GPU.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VARIABLE = "GPU_WHEEL_DIRECTORY"
PROVIDERS = ("cuda", "tensorrt")
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) {
    const char *log = getenv("STUB_DRIVER_LOG"), *devices = getenv("CUDA_VISIBLE_DEVICES");
    FILE *file = log ? fopen(log, "a") : 0;
    if (file) { fprintf(file, "%s\\n", devices ? devices : "all"); fclose(file); }
    return 0;
}
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
"""
NO_DEVICE = 100  # cudaErrorNoDevice
REGISTRY = """
static void *none(void *self, int *count) { if (count) *count = 0; return 0; }
static void *table[64] = {[0 ... 63] = none};
static void *object = table;
void *getPluginRegistry() { return &object; }
"""


@functools.cache
def wheel() -> Path:
    """The directory with the unpacked wheel; fetched where the variable asks for it, otherwise the test is skipped."""
    version = re.search(r"^onnxruntime-gpu==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    asked = os.environ.get(VARIABLE)
    cache = Path(asked or Path.home() / ".cache" / "portcullis")
    directory = cache / f"onnxruntime-gpu-{version}-{sys.implementation.cache_tag}"
    if not directory.is_dir():
        if not asked:
            pytest.skip(f"onnxruntime-gpu {version} (256 MB) is not in {cache}; .ci/run, or {VARIABLE}, fetches it")
        _fetch(version, directory)
    return directory


def _fetch(version: str, directory: Path) -> None:
    draft = directory.with_name(f".{directory.name}-{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--target", draft, f"onnxruntime-gpu=={version}"], check=False, capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(draft, ignore_errors=True)
        pytest.skip(f"onnxruntime-gpu {version} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    draft.rename(directory)


def need_compiler() -> None:
    if not all(map(shutil.which, ("gcc", "nm"))):
        pytest.skip("gcc and nm, which make the stand-in libraries, are missing")


def stub_driver(directory: Path) -> Path:
    """A driver that says one device and nothing else; the trials that asked it write which device they may see."""
    need_compiler()
    directory.mkdir(parents=True, exist_ok=True)
    _compile(directory / "libcuda.so.1", DRIVER, None)
    return directory


def stub_libraries(directory: Path) -> Path:
    """Every library that the wheel's providers link, with just the symbols that they ask for."""
    stub_driver(directory)
    for library, names in _symbols().items():
        source = "\n".join(map(_function, sorted(names)))
        if library == "libcuda.so.1":
            _compile(directory / library, DRIVER + source, None)
        else:
            _compile(directory / library, source, library)
    return directory


def environment(libraries: Path, **more: str) -> dict[str, str]:
    """Variables of a process that has the wheel and these libraries."""
    return {"PYTHONPATH": str(wheel()), "LD_LIBRARY_PATH": str(libraries), **more}


def _symbols() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set, {"libcurand.so.10": set()})
    for provider in PROVIDERS:
        library = wheel() / "onnxruntime" / "capi" / f"libonnxruntime_providers_{provider}.so"
        listed = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            name, _, version = line.split()[-1].partition("@")
            if owner := _owner(name, version):
                found[owner].add(name)
    return found


def _owner(name: str, version: str) -> str | None:
    """NVIDIA's versioned symbols carry their library's name; TensorRT's and the driver's are told by their own."""
    if version.startswith(("libcu", "libnv")):
        return version
    if name.startswith("createNvOnnx"):
        return "libnvonnxparser.so.10"
    if name.startswith(("createInfer", "getInfer", "getPlugin")):
        return "libnvinfer.so.10"
    return "libcuda.so.1" if name.startswith("cu") else None


def _function(name: str) -> str:
    if name == "cudaGetDeviceCount":
        return f"int {name}(int *count) {{ *count = 1; return 0; }}"
    if name == "getPluginRegistry":
        return REGISTRY
    if name.endswith(("String", "Name")):
        return f'const char *{name}() {{ return "no device"; }}'
    if name.startswith("__cuda"):  # called while the library loads; wants somewhere to write
        return f"static void *place_{name}[64]; void *{name}() {{ return place_{name}; }}"
    return f"int {name}() {{ return {NO_DEVICE}; }}"


def _compile(target: Path, source: str, version: str | None) -> None:
    code = target.with_suffix(".c")
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{target.name}", "-o", target, code]
    if version:
        script = target.with_suffix(".map")
        script.write_text(f"{version} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
