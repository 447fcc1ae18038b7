"""The InferenceService: by its schema, by what KServe does with it, and by a service that starts as it would there."""

from pathlib import Path

import httpx
import jsonschema
import pytest

from portcullis.commands.settings_sources import load
from portcullis.environment import PREFIX
from tests import tiny
from tests.deploy.dockerfile import stages
from tests.deploy.manifests import DIRECTORY, needs_kubectl, rendered, resource, validate
from tests.running import RunningService
from tests.service.pictures import RED

SERVICE = resource("kserve/inference-service.yaml")
PREDICTOR = SERVICE["spec"]["predictor"]
(CONTAINER,) = PREDICTOR["containers"]
VARIABLES = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
INJECTED = {  # what Kubernetes puts into a pod for the Services `portcullis` and `portcullis-predictor`
    f"{PREFIX}{service}{name}": value
    for service in ("", "PREDICTOR_")
    for name, value in {
        "SERVICE_HOST": "10.96.0.7",
        "SERVICE_PORT": "80",
        "SERVICE_PORT_HTTP": "80",
        "PORT": "tcp://10.96.0.7:80",
        "PORT_80_TCP": "tcp://10.96.0.7:80",
        "PORT_80_TCP_PROTO": "tcp",
        "PORT_80_TCP_PORT": "80",
        "PORT_80_TCP_ADDR": "10.96.0.7",
    }.items()
}


def test_a_misspelt_field_would_be_found():
    wrong = {**SERVICE, "spec": {"predictor": {**PREDICTOR, "minReplica": 1}}}
    with pytest.raises(jsonschema.ValidationError, match="minReplica"):
        validate(wrong)


def test_its_pod_is_one_that_kubernetes_takes():
    own = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "timeout"}
    pod = {name: value for name, value in PREDICTOR.items() if name not in own}
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "portcullis"}, "spec": pod})


def test_kserve_takes_the_container_for_the_predictor_and_fetches_its_bundle():
    assert CONTAINER["name"] == "kserve-container"
    assert "://" in VARIABLES["STORAGE_URI"]
    assert VARIABLES[f"{PREFIX}MODELS"] == "/mnt/models"
    paths = {name: CONTAINER[name]["httpGet"]["path"] for name in CONTAINER if name.endswith("Probe")}
    ready, live = "/v2/health/ready", "/v2/health/live"
    assert paths == {"startupProbe": ready, "readinessProbe": ready, "livenessProbe": live}
    assert CONTAINER["ports"][0]["containerPort"] == int(stages()["cpu"].environment()[f"{PREFIX}PORT"])


def test_its_variables_are_settings_beside_those_that_the_platform_injects():
    image = stages()["cpu"].environment()
    settings = load({}, image | INJECTED | VARIABLES)
    assert (settings.port, str(settings.models)) == (8000, "/mnt/models")
    assert PREDICTOR["terminationGracePeriodSeconds"] > settings.drain_seconds + settings.grace_seconds


@needs_kubectl
def test_the_image_can_be_set_as_in_the_overlays():
    (container,) = rendered(DIRECTORY / "kserve")["InferenceService"]["spec"]["predictor"]["containers"]
    assert container["image"] == "portcullis:cpu"


@pytest.mark.slow
def test_a_bundle_that_lies_directly_in_the_models_directory_is_served(tmp_path):
    """As the storage initialiser leaves it, read-only, with the platform's variables in the environment."""
    bundle = tiny.write(tmp_path / "made", version=7)
    mounted = Path(bundle.path).rename(tmp_path / "mnt")
    for file in mounted.rglob("*"):
        file.chmod(0o444 if file.is_file() else 0o555)
    with RunningService(mounted, tmp_path / "runtime", environment=INJECTED) as service:
        assert httpx.get(f"{service.url}/v2/health/ready").status_code == 200
        answer = httpx.post(f"{service.url}/v1/predict", content=RED).json()
        assert (answer["model"], answer["version"], answer["label"]) == ("tiny", 7, "red")
        assert httpx.get(f"{service.url}/v2/models/tiny").json()["versions"] == ["7"]
