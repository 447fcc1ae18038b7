"""Two lines and one contract between them; inside each line, rooms and the arrows between them."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIGHT = {"errors", "portcullis"}  # what any room may know: the error tree and the version
SERVICE_ARROWS = {  # room → the rooms that it may import
    "settings": set(),
    "environment": set(),
    "errors": set(),
    "schemas": {"bundle"},
    "bundle": set(),
    "client": {"schemas"},
    "telemetry": {"bundle", "schemas", "settings"},
    "store": set(),
    "drift": {"bundle", "schemas", "store", "telemetry"},
    "answering": {"bundle", "drift", "settings", "store", "telemetry"},
    "lifecycle": {"answering", "bundle", "settings", "store", "telemetry"},
    "http": set(),
    "api": {"answering", "bundle", "drift", "http", "lifecycle", "schemas", "settings", "store", "telemetry"},
    "processes": {"answering", "api", "bundle", "drift", "http", "lifecycle", "settings", "store", "telemetry"}
    | {"environment"},
    "commands": {"bundle", "client", "environment", "processes", "schemas", "settings", "telemetry"},
    "__main__": {"commands"},
}
TRAINING_ARROWS = {
    "errors": set(),
    "torchvision_ops": set(),
    "config": set(),
    "recipes": {"config"},
    "runs": {"config"},
    "data": {"config", "runs", "torchvision_ops"},
    "backbones": {"torchvision_ops"},
    "methods": set(),
    "mixing": set(),
    "fitting": {"backbones", "config", "data", "methods", "mixing", "runs"},
    "graph": {"data", "fitting", "methods"},
    "measuring": {"config", "data", "fitting", "graph", "methods", "runs", "torchvision_ops"},
    "exporting": {"config", "data", "fitting", "graph", "measuring", "methods", "runs"},
    "comparing": {"config", "data", "exporting", "fitting", "measuring", "methods", "mixing", "recipes", "runs"},
    "commands": {"comparing", "config", "data", "exporting", "fitting", "measuring", "recipes", "runs"},
    "__main__": {"commands"},
}
CONTRACT = {"bundle", "errors", "portcullis"}  # of the service, what training may know
TRAINING_LIBRARIES = {"portcullis_training", "torch", "torchvision"}
OWNERS = {  # library → the only place in the service that may import it
    "onnxruntime": "portcullis.bundle.session",
    "prometheus_client": "portcullis.telemetry",
    "PIL": "portcullis.bundle.preprocess",
    "fastapi": "portcullis.api",
    "sqlite3": "portcullis.store.sqlite",
    "psycopg": "portcullis.store.postgresql",
    "opentelemetry": "portcullis.telemetry.tracing",
    "httpx": "portcullis.client",
    "tqdm": "portcullis.commands",
    "pyarrow": "portcullis.commands.scoring.sheet",
    "ray": "portcullis.commands.on_ray",
    "fsspec": "portcullis.bundle.sources.tree",
    "mlflow": "portcullis.bundle.sources.mlflow_registry",
    "cryptography": "portcullis.bundle.signatures",
}


def modules(root: str) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((ROOT / root).rglob("*.py"))
    }


SERVICE = modules("service")
TRAINING = modules("training")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions; `from room import module` counts as the module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide the arrows"
            assert node.module is not None
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in SERVICE or name in TRAINING else node.module for name in names}
    return found


def room(module: str) -> str:
    """The first level inside a package: `portcullis.drift.rings` is in the room `drift`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def rooms_reached(path: Path, package: str) -> set[str]:
    return {room(name) for name in imports(path) if name.split(".")[0] == package}


@pytest.mark.parametrize("module", SERVICE)
def test_the_service_never_imports_training_or_torch(module):
    assert not {name.split(".")[0] for name in imports(SERVICE[module])} & TRAINING_LIBRARIES


@pytest.mark.parametrize("module", [module for module in SERVICE if module != "portcullis"])
def test_the_arrows_between_the_rooms_of_the_service(module):
    own = room(module)
    assert rooms_reached(SERVICE[module], "portcullis") <= SERVICE_ARROWS[own] | LIGHT | {own}


@pytest.mark.parametrize("module", [module for module in TRAINING if module != "portcullis_training"])
def test_the_arrows_between_the_rooms_of_training(module):
    own = room(module)
    assert rooms_reached(TRAINING[module], "portcullis_training") <= TRAINING_ARROWS[own] | {"errors", own}


@pytest.mark.parametrize("module", TRAINING)
def test_training_knows_the_contract_of_the_service_only(module):
    assert rooms_reached(TRAINING[module], "portcullis") <= CONTRACT


@pytest.mark.parametrize("arrows", [SERVICE_ARROWS, TRAINING_ARROWS], ids=["service", "training"])
def test_the_arrows_form_no_circle(arrows):
    left = {name: set(targets) for name, targets in arrows.items()}
    while left:
        free = {name for name, targets in left.items() if not targets & left.keys()}
        assert free, f"these rooms know one another in a circle: {sorted(left)}"
        left = {name: targets for name, targets in left.items() if name not in free}


@pytest.mark.parametrize(
    ("package", "arrows"), [("portcullis", SERVICE_ARROWS), ("portcullis_training", TRAINING_ARROWS)]
)
def test_every_room_has_its_arrows_and_the_first_level_stays_small(package, arrows):
    known = SERVICE if package == "portcullis" else TRAINING
    found = {room(module) for module in known if module != package}
    assert found == set(arrows)
    assert (
        len(
            {
                name
                for name in found
                if f"{package}.{name}" in known and known[f"{package}.{name}"].name == "__init__.py"
            }
        )
        <= 12
    )


@pytest.mark.parametrize("module", [m for m, path in {**SERVICE, **TRAINING}.items() if path.name == "__init__.py"])
def test_every_room_says_what_lives_there_and_what_it_must_not_know(module):
    text = ast.get_docstring(ast.parse({**SERVICE, **TRAINING}[module].read_text()))
    assert text
    if module.count(".") == 1:
        assert text.count(". ") + text.count(".\n") + text.endswith(".") >= 2, f"{module}: two sentences"


@pytest.mark.parametrize("file", ["calibrated", "manifest", "files"])
def test_the_bundle_on_disk_needs_the_standard_library_and_pydantic_only(file):
    allowed = {"pydantic", "portcullis.errors", "portcullis.bundle.calibrated", "portcullis.bundle.manifest"}
    reached = imports(SERVICE[f"portcullis.bundle.{file}"])
    assert {
        name for name in reached if name not in allowed and name.split(".")[0] not in sys.stdlib_module_names
    } == set()


@pytest.mark.parametrize("library", OWNERS)
def test_each_library_has_one_owner_in_the_service(library):
    users = {module for module, path in SERVICE.items() if library in {name.split(".")[0] for name in imports(path)}}
    owner = OWNERS[library]
    assert users
    assert {user for user in users if user != owner and not user.startswith(owner + ".")} == set()


def test_a_service_loads_no_bundle_past_the_keys_that_it_trusts():
    """`load_bundle` asks nobody; what serves goes through Trust or a source. Commands load what a person hands them."""
    users = {
        module
        for module, path in SERVICE.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and "load_bundle" in {alias.name for alias in node.names}
    }
    assert {room(user) for user in users} == {"bundle", "commands"}
    assert {user for user in users if room(user) == "bundle"} == {
        "portcullis.bundle.signatures",
        "portcullis.bundle.sources.moving",
    }


def test_one_module_reads_the_environment():
    readers = {
        module
        for module, path in SERVICE.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers == {"portcullis.environment"}


def test_no_module_is_named_after_nothing():
    vague = {"utils", "common", "base", "helpers", "misc"}
    assert [m for m in [*SERVICE, *TRAINING] if m.split(".")[-1] in vague] == []


@pytest.mark.parametrize(("package", "line"), [("portcullis", "service"), ("portcullis_training", "training")])
def test_the_tests_mirror_the_rooms(package, line):
    rooms = {path.name for path in (ROOT / line / package).iterdir() if (path / "__init__.py").is_file()}
    mirrored = {path.name for path in (ROOT / "tests" / line).iterdir() if (path / "__init__.py").is_file()}
    assert mirrored <= rooms
