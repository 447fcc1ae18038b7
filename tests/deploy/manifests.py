"""The Kubernetes manifests: read, put together by Kustomize, and held against the schemas of what they are."""

import functools
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.crd_schema import schema_of
from tests.deploy.dockerfile import ROOT

DIRECTORY = ROOT / "deploy" / "kubernetes"
OVERLAYS = {"cpu": "cpu", "gpu": "gpu", "one": "cpu", "fleet": "cpu"}
"""By name, with the image that each runs."""
CUSTOM_KINDS = {"InferenceService", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
MANIFESTS = sorted(
    path
    for path in DIRECTORY.rglob("*.yaml")
    if path.name != "kustomization.yaml" and "apiVersion" in path.read_text()[:4000]
)


def _has_kustomize() -> bool:
    """Kustomize 5 inside kubectl; Debian's own kubectl has one that knows no components."""
    if shutil.which("kubectl") is None:
        return False
    asked = ["kubectl", "version", "--client", "--output=json"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    return '"kustomizeVersion": "v5' in done.stdout


needs_kubectl = pytest.mark.skipif(not _has_kustomize(), reason="kubectl with Kustomize 5 is missing")


def validate(resource: dict) -> None:
    """By the schema of Kubernetes itself, or by that of whoever defined the kind."""
    if resource["kind"] in CUSTOM_KINDS:
        jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
        jsonschema.Draft202012Validator(schema_of(resource["kind"])).validate(resource)
        return
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    kubernetes_validate.validate(resource, "1.32", strict=True)


def resource(name: str) -> dict:
    return yaml.safe_load((DIRECTORY / name).read_text())


@functools.cache
def rendered(directory: Path) -> dict[str, dict]:
    done = subprocess.run(["kubectl", "kustomize", directory], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


def overlay_of_ones_own(directory: Path, overlay: str, *components: str) -> dict[str, dict]:
    """An overlay with components, as docs/operations.md tells it; in a copy, since Kustomize wants relative paths."""
    listed = ", ".join(f"../../{component}" for component in components)
    return rendered_as(directory, f"resources: [../{overlay}]\ncomponents: [{listed}]\n")


def rendered_as(directory: Path, kustomization: str) -> dict[str, dict]:
    """What an overlay of this text, beside those that are shipped, is put together to."""
    copy = directory / "kubernetes"
    shutil.copytree(DIRECTORY, copy)
    own = copy / "overlays" / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(kustomization)
    return rendered(own)
