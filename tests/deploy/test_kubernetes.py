"""The Kubernetes manifests: each alone, and as Kustomize puts them together."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from service.settings import PREFIX, load
from tests.deploy.dockerfile import ROOT, stages

DIRECTORY = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("cpu", "gpu")
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}  # custom resources: kubernetes-validate has no schema for them
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
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    if resource["kind"] not in OPERATOR_KINDS:
        kubernetes_validate.validate(resource, "1.32", strict=True)


def resource(name: str) -> dict:
    return yaml.safe_load((DIRECTORY / name).read_text())


@functools.cache
def rendered(directory: Path) -> dict[str, dict]:
    done = subprocess.run(["kubectl", "kustomize", directory], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(DIRECTORY)))
def test_each_manifest_is_valid_by_itself(path):
    validate(yaml.safe_load(path.read_text()))


def test_every_manifest_is_part_of_something():
    listed = {
        (kustomization.parent / path).resolve()
        for kustomization in DIRECTORY.rglob("kustomization.yaml")
        for path in yaml.safe_load(kustomization.read_text()).get("resources", [])
    }
    assert {path for path in MANIFESTS if path.name != "keys.example.yaml"} <= listed


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_renders_to_valid_resources(overlay):
    resources = rendered(DIRECTORY / "overlays" / overlay)
    for document in resources.values():
        validate(document)
    assert set(resources) >= {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_asks_for_what_it_runs_on(overlay):
    (container,) = rendered(DIRECTORY / "overlays" / overlay)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"portcullis:{overlay}"
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) is (overlay == "gpu")
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_variables_of_a_pod_are_settings(overlay, tmp_path):
    resources = rendered(DIRECTORY / "overlays" / overlay)
    (container,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = stages()[overlay].environment() | resources["ConfigMap"]["data"]
    variables |= {variable["name"]: variable["value"] for variable in container["env"]}
    for name, text in resource("keys.example.yaml")["stringData"].items():
        (tmp_path / name).write_text(text)
        variable = f"{PREFIX}{name.upper()}_FILE"
        assert Path(variables[variable]).name == name
        variables[variable] = str(tmp_path / name)
    settings = load({}, variables)
    assert len(settings.admin_keys) == 1
    grace = resources["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_seconds + settings.grace_seconds


@needs_kubectl
@pytest.mark.parametrize("component", ["models-volume", "models-object-store"])
def test_bundles_can_come_from_elsewhere(component, tmp_path):
    """In an overlay of one's own, as docs/operations.md says; in a copy, since Kustomize wants relative paths."""
    copy = tmp_path / "kubernetes"
    shutil.copytree(DIRECTORY, copy)
    own = copy / "overlays" / "own"
    own.mkdir()
    text = "resources: [../cpu]\ncomponents: [../../" + component + "]\n"
    (own / "kustomization.yaml").write_text(text)
    resources = rendered(own)
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    for document in resources.values():
        validate(document)
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == "/srv/models"]
    assert mount["readOnly"]
    assert mount["name"] in {volume["name"] for volume in pod["volumes"]}
    if component == "models-object-store":
        assert 443 in {port["port"] for rule in resources["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]}


def test_pods_are_found_by_their_service_budget_policy_and_monitor():
    template = resource("base/deployment.yaml")["spec"]["template"]
    labels = template["metadata"]["labels"]
    service = resource("base/service.yaml")
    assert service["spec"]["selector"].items() <= labels.items()
    for name in ("base/deployment.yaml", "base/disruption-budget.yaml"):
        assert resource(name)["spec"]["selector"]["matchLabels"].items() <= labels.items()
    policy = resource("base/network-policy.yaml")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    monitor = resource("monitoring/service-monitor.yaml")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {service["spec"]["ports"][0]["targetPort"]} == ports
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports


def test_a_service_called_portcullis_puts_no_variables_into_the_pods():
    """Kubernetes would set PORTCULLIS_PORT=tcp://… and the settings refuse what they do not know."""
    assert resource("base/service.yaml")["metadata"]["name"] == "portcullis"
    assert resource("base/deployment.yaml")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_container_is_hardened_and_writes_only_to_its_volumes():
    pod = resource("base/deployment.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"{pod['securityContext']['runAsUser']}:" in stages()["gpu"].all("USER")[-1]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {stages()["gpu"].environment()[f"{PREFIX}RUNTIME_DIRECTORY"], "/tmp"}


def test_the_runtime_volume_holds_a_full_review_queue():
    """A pod whose volume grows beyond its limit is evicted."""
    volumes = resource("base/deployment.yaml")["spec"]["template"]["spec"]["volumes"]
    (limit,) = [volume["emptyDir"]["sizeLimit"] for volume in volumes if volume["name"] == "runtime"]
    assert int(limit.removesuffix("Gi")) * 1024**3 > 2 * load({}, {}).review_max_bytes


def test_probes_ask_for_what_they_are_meant_to():
    (container,) = resource("base/deployment.yaml")["spec"]["template"]["spec"]["containers"]
    paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}


def test_the_autoscaler_uses_the_metric_that_the_adapter_makes():
    (rule,) = resource("monitoring/prometheus-adapter-values.yaml")["rules"]["custom"]
    (metric,) = resource("base/autoscaler.yaml")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert re.match(rule["name"]["matches"], rule["seriesQuery"].partition("{")[0])
    target = float(metric["pods"]["target"]["averageValue"].removesuffix("m")) / 1000
    assert target < load({}, {}).overload_wait_seconds, "under overload images wait about that long, not longer"
