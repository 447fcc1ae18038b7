"""The import rules of the two lines and the one contract between them."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACT = {"service.bundle", "service.preprocess", "service.engine", "service.gate", "service.errors"}
TRAINING_LIBRARIES = {"training", "torch", "torchvision"}
OWNERS = {  # library → the only module of service/ that may import it
    "onnxruntime": {"service.engine"},
    "prometheus_client": {"service.metrics"},
    "PIL": {"service.preprocess"},
    "fastapi": {"service.api"},
    "sqlite3": {"service.review_store"},
    "opentelemetry": {"service.tracing"},
    "httpx": {"service.client"},
    "tqdm": {"service.commands"},
    "pyarrow": {"service.score_sheet"},
}


def modules(package: str) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide the arrows"
            assert node.module is not None
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module in ("service", "training") else {node.module}
    return found


SERVICE = modules("service")
TRAINING = modules("training")


@pytest.mark.parametrize("module", SERVICE)
def test_the_service_never_imports_training_or_torch(module):
    assert not {name.split(".")[0] for name in imports(SERVICE[module])} & TRAINING_LIBRARIES


@pytest.mark.parametrize("module", TRAINING)
def test_training_imports_only_the_contract_from_the_service(module):
    reached = {name for name in imports(TRAINING[module]) if name.split(".")[0] == "service"}
    assert {name for name in reached if name not in CONTRACT | {"service.__version__"}} == set()


def test_the_bundle_knows_the_standard_library_and_pydantic_only():
    allowed = {"pydantic", "service.errors"}
    foreign = {
        name
        for name in imports(SERVICE["service.bundle"])
        if name not in allowed and name.split(".")[0] not in sys.stdlib_module_names
    }
    assert foreign == set()


@pytest.mark.parametrize("library", OWNERS)
def test_each_library_has_one_owner_in_the_service(library):
    users = {module for module, path in SERVICE.items() if library in {name.split(".")[0] for name in imports(path)}}
    assert {user for user in users if not any(user == o or user.startswith(o + ".") for o in OWNERS[library])} == set()


def test_only_settings_reads_the_environment():
    readers = {
        module
        for module, path in SERVICE.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers <= {"service.settings"}


def test_the_package_itself_imports_nothing():
    assert imports(ROOT / "service" / "__init__.py") == set()


def test_no_module_is_named_after_nothing():
    vague = {"utils", "common", "base", "helpers", "misc"}
    assert [m for m in [*SERVICE, *TRAINING] if m.split(".")[-1] in vague] == []
