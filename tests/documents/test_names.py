"""Every file, module and link that a document names exists, so that a move leaves no signpost behind."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from portcullis.environment import FOREIGN, PREFIX
from portcullis.settings import Settings
from tests.documents.pages import PAGES, ROOT, anchors, name_of, tracked

_SUFFIXES = "py|md|js|css|yml|yaml|toml|json|npz|png|jpg"
_TOP = "service|training|tests|bench|deploy|docs|models"
_PATH = re.compile(rf"(?<![\w./$*-])((?:{_TOP})/(?:[\w.-]+/)*(?:[\w.-]+\.(?:{_SUFFIXES})\b|(?<=/)(?=[\s`).,;:]|$)))")
_BUNDLE = re.compile(r"(?<![\w./$*-])(models/[\w.-]+/\d+)\b")
_SOURCE = re.compile(r"(?<![\w./*-])((?:\w+/)*\w+\.(?:py|js))\b")
_MODULE = re.compile(rf"(?<![\w./-])(portcullis(?:_training)?(?:\.(?!(?:{_SUFFIXES})\b)[A-Za-z_]\w*)+)\b")
_RUN = re.compile(r"(?:python3?|torchrun)[^`\n]*? -m\s+([\w.]+)")
COMMENTED = tracked(".py", ".yml", ".yaml", ".toml", ".js", "Dockerfile", "Makefile")
SOURCES = tracked(".py", ".js")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_a_page_names_exists(page):
    for path in _paths(page):
        assert (ROOT / path).exists(), f"{name_of(page)} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_source_file_that_a_page_names_exists(page):
    """Also by a part of its path: `fitting/schedule.py` or, where its room was named before, `window.py`."""
    known = [f"/{path.relative_to(ROOT)}" for path in SOURCES]
    for source in _SOURCE.findall(page.read_text()):
        assert any(path.endswith(f"/{source}") for path in known), f"{name_of(page)} names {source}"


def test_every_module_that_a_page_or_a_docstring_names_exists():
    for page in [*PAGES, *COMMENTED]:
        text = _docstrings(page) if page.suffix == ".py" else page.read_text()
        for name in {*_MODULE.findall(text), *_RUN.findall(text)} - {"pip", "venv"}:
            assert _is_there(name), f"{name_of(page)} names {name}"


def test_every_path_in_the_code_and_its_comments_exists():
    for source in COMMENTED:
        for path in _paths(source):
            assert (ROOT / path).exists(), f"{name_of(source)} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in anchors(linked.read_text()), f"{name_of(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_variable_that_a_page_names_is_read(page):
    known = {f"{PREFIX}{name.upper()}" for name in (*Settings.model_fields, *FOREIGN, "config")}
    for name in re.findall(r"\bPORTCULLIS_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()):
        assert name in known, f"{name_of(page)} names {name}"


@pytest.mark.slow
def test_every_route_that_a_page_names_is_served(running_service):
    described = httpx.get(f"{running_service.url}/openapi.json").raise_for_status().json()["paths"]
    known = {re.sub(r"\{[^}]*\}", "{}", path) for path in described}
    for page in PAGES:
        for path in re.findall(r"/v[12]/[\w/{}]+", page.read_text()):
            shape = re.sub(r"\{[^}]*\}|\b(?:NAME|VERSION)\b", "{}", path).rstrip("/")
            assert any(route.startswith(shape) for route in known), f"{name_of(page)} names {path}"


def _paths(page: Path) -> list[str]:
    """Paths from the root of the repository, bundles among them; NAME and the like stand for something else."""
    found = [*_PATH.findall(page.read_text()), *_BUNDLE.findall(page.read_text())]
    return [path for path in found if not any(part.isupper() for part in Path(path).parts)]


def _docstrings(source: Path) -> str:
    nodes = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, DOCUMENTED)]
    return "\n".join(filter(None, map(ast.get_docstring, nodes)))


def _is_there(name: str) -> bool:
    """A module, or what it defines: `portcullis.client.Client`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if source := _source_of(".".join(parts[:length])):
            return length == len(parts) or bool(re.search(rf"\b{parts[length]}\b", source))
    return False


def _source_of(module: str) -> str | None:
    """Read, not imported: some modules need what is not installed. A bare directory is no module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).read_text() or " "
