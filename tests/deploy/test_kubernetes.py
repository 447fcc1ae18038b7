"""The Kubernetes manifests: each alone, and as Kustomize puts them together."""

import re
from pathlib import Path

import pytest
import yaml

from portcullis.commands.settings_sources import load
from portcullis.environment import PREFIX
from tests.deploy.dockerfile import stages
from tests.deploy.manifests import (
    DIRECTORY,
    MANIFESTS,
    OVERLAYS,
    needs_kubectl,
    overlay_of_ones_own,
    rendered,
    rendered_as,
    resource,
    validate,
)


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
    plain = {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"}
    beside = {"HorizontalPodAutoscaler", "PersistentVolumeClaim"}
    assert set(resources) - beside == plain, "of kinds that every cluster knows"


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_asks_for_what_it_runs_on(overlay):
    (container,) = rendered(DIRECTORY / "overlays" / overlay)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"portcullis:{OVERLAYS[overlay]}"
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) is (overlay == "gpu")
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_variables_of_a_pod_are_settings(overlay, tmp_path):
    resources = rendered(DIRECTORY / "overlays" / overlay)
    (container,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = stages()[OVERLAYS[overlay]].environment() | resources["ConfigMap"]["data"]
    variables |= {variable["name"]: variable.get("value", "postgresql://db/x") for variable in container["env"]}
    for name, text in resource("keys.example.yaml")["stringData"].items():
        (tmp_path / name).write_text(text)
        variable = f"{PREFIX}{name.upper()}_FILE"
        assert Path(variables[variable]).name == name
        variables[variable] = str(tmp_path / name)
    settings = load({}, variables)
    assert len(settings.admin_keys) == 1
    assert (settings.database is not None) is (overlay == "fleet")
    grace = resources["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_seconds + settings.grace_seconds


@needs_kubectl
@pytest.mark.parametrize("component", ["models-volume", "models-object-store"])
def test_bundles_can_come_from_elsewhere(component, tmp_path):
    resources = overlay_of_ones_own(tmp_path, "cpu", component)
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
    assert f"{pod['securityContext']['runAsUser']}:" in stages()["gpu"].inherited("USER")[-1]
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


@needs_kubectl
def test_monitoring_is_for_clusters_that_have_the_operator(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "cpu", "monitoring")
    for document in resources.values():
        validate(document)
    assert set(resources) >= {"PrometheusRule", "ServiceMonitor"}


def test_replicas_are_spread_over_zones_and_over_nodes():
    constraints = resource("base/deployment.yaml")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in constraints] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert {each["whenUnsatisfiable"] for each in constraints} == {"ScheduleAnyway"}, "one zone is better than none"


@needs_kubectl
def test_a_build_of_tensorrt_outlives_its_pod_and_nobody_gives_up_on_it(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "gpu", "tensorrt")
    for document in resources.values():
        validate(document)
    deployment = resources["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    patience_seconds = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience_seconds >= 3600
    assert deployment["progressDeadlineSeconds"] > patience_seconds
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "cache"]
    for name in (f"{PREFIX}TENSORRT_CACHE", "CUDA_CACHE_PATH"):
        assert Path(variables[name]).is_relative_to(mount["mountPath"])
    (volume,) = [each for each in deployment["template"]["spec"]["volumes"] if each["name"] == "cache"]
    claim = resources["PersistentVolumeClaim"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    settings = load(
        {}, {name: value for name, value in variables.items() if name.startswith(PREFIX) and "KEYS" not in name}
    )
    assert settings.providers == ("tensorrt", "cuda")


@needs_kubectl
def test_one_pod_keeps_what_it_was_told_on_a_volume_that_it_has_alone():
    resources = rendered(DIRECTORY / "overlays" / "one")
    deployment = resources["Deployment"]["spec"]
    assert "HorizontalPodAutoscaler" not in resources
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    [runtime] = [volume for volume in deployment["template"]["spec"]["volumes"] if volume["name"] == "runtime"]
    claim = resources["PersistentVolumeClaim"]
    assert runtime == {"name": "runtime", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


@needs_kubectl
def test_a_fleet_has_its_database_from_a_secret_and_its_bundles_from_a_url():
    resources = rendered(DIRECTORY / "overlays" / "fleet")
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    secret = variables[f"{PREFIX}DATABASE"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "portcullis-database", "key": "url"}, "not optional: without it a pod waits"
    assert variables[f"{PREFIX}INSTANCE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert resources["ConfigMap"]["data"][f"{PREFIX}MODELS"].startswith("s3://")
    assert {"secretRef": {"name": "portcullis-object-store", "optional": True}} in container["envFrom"]
    egress = {port["port"] for rule in resources["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]}
    assert egress == {53, 443, 5432}
    assert resources["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@needs_kubectl
def test_the_overlay_that_the_walk_through_writes_is_a_fleet_of_ones_own(tmp_path):
    page = (DIRECTORY.parents[1] / "docs" / "fleet.md").read_text()
    (text,) = re.findall(r"<!-- overlay -->\n```yaml\n(.*?)```", page, re.DOTALL)
    resources = rendered_as(tmp_path, text)
    for document in resources.values():
        validate(document)
    (container,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/portcullis:1"
    settings = load({}, resources["ConfigMap"]["data"])
    assert settings.models == "s3://acme-models/portcullis"
    fleet = rendered(DIRECTORY / "overlays" / "fleet")["ConfigMap"]["data"]
    assert fleet.keys() <= resources["ConfigMap"]["data"].keys(), "what the fleet sets beside stays"


@needs_kubectl
@pytest.mark.parametrize("component", ["database", "models-url"])
def test_the_parts_of_a_fleet_fit_an_overlay_on_gpus(component, tmp_path):
    resources = overlay_of_ones_own(tmp_path, "gpu", component)
    for document in resources.values():
        validate(document)
    (container,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {f"{PREFIX}WORKERS"} <= {variable["name"] for variable in container["env"]}
