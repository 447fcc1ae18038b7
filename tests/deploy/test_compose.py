"""docker-compose.yml and the configuration that it mounts."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from portcullis.commands.settings_sources import load
from portcullis.environment import PREFIX
from tests.deploy.dockerfile import ROOT, stages

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
SERVING = ("portcullis-cpu", "portcullis-gpu")


def _mounts(name: str) -> dict[str, str]:
    """Path here → path in the container."""
    pairs = (volume.split(":")[:2] for volume in SERVICES[name]["volumes"])
    return {source: target for source, target in pairs if source.startswith("./")}


def test_it_is_a_compose_file_by_the_specification():
    pytest.importorskip("check_jsonschema", reason="check-jsonschema, which has the specification's schema, is missing")
    checked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checked, ROOT / "docker-compose.yml"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_each_profile_has_the_service_once_and_everything_else_always_runs():
    profiles = {name: service.get("profiles") for name, service in SERVICES.items()}
    assert profiles == {
        "portcullis-cpu": ["cpu"],
        "portcullis-gpu": ["gpu"],
        "prometheus": None,
        "alertmanager": None,
        "grafana": None,
    }


@pytest.mark.parametrize("name", SERVING)
def test_the_service_runs_hardened_from_a_target_that_exists(name):
    service = SERVICES[name]
    assert service["build"]["target"] in stages()
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    writable = {volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")}
    assert writable == {stages()[service["build"]["target"]].environment()[f"{PREFIX}RUNTIME_DIRECTORY"]}


@pytest.mark.parametrize("name", SERVING)
def test_the_service_drains_before_it_is_killed(name):
    settings = load({}, {})
    assert (
        float(SERVICES[name]["stop_grace_period"].removesuffix("s")) > settings.grace_seconds + settings.drain_seconds
    )


@pytest.mark.parametrize("name", SERVING)
def test_its_variables_are_settings(name):
    """With nothing set outside, every default in the file must be a value that the setting takes."""
    variables = {key: _default(value) for key, value in SERVICES[name]["environment"].items()}
    assert load({}, variables).gate == load({}, {}).gate


def _default(value: str) -> str:
    return value.partition(":-")[2].removesuffix("}") if value.startswith("${") else value


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_listens_beyond_the_machine_unless_asked(name):
    assert all(port.startswith("${BIND_ADDRESS:-127.0.0.1}:") for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name):
    assert [path for path in _mounts(name) if not (ROOT / path).exists()] == []


def test_prometheus_finds_its_configuration_its_rules_and_the_service():
    mounted = {target: ROOT / source for source, target in _mounts("prometheus").items()}
    (file,) = (flag.partition("=")[2] for flag in SERVICES["prometheus"]["command"] if "config.file" in flag)
    config_file = mounted[str(Path(file).parent)] / Path(file).name
    config = yaml.safe_load(config_file.read_text())
    assert all((config_file.parent / rules).is_file() for rules in config["rule_files"])
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "portcullis")
    (found_by,) = job["dns_sd_configs"]
    for name in SERVING:
        assert found_by["names"] == SERVICES[name]["networks"]["default"]["aliases"]
        assert SERVICES[name]["ports"][0].endswith(f":{found_by['port']}")
    (alertmanager,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert alertmanager.split(":")[0] in SERVICES


def test_grafana_finds_its_data_source_and_its_dashboards_without_a_click():
    mounts = {target: ROOT / source for source, target in _mounts("grafana").items()}
    provisioning = mounts["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"].removeprefix("http://").split(":")[0] in SERVICES
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "portcullis.yml").read_text())["providers"]
    dashboards = mounts[provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    text = (dashboards / Path(home).name).read_text()
    assert f'"uid": "{source["uid"]}"' in text


def test_a_plain_up_serves_on_the_cpu():
    lines = (ROOT / ".env").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["COMPOSE_PROFILES=cpu"]
