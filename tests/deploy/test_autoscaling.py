"""Autoscaling: on a CPU by its cores and the wait for an engine, on a GPU by what the device does and by decoding."""

import re

import pytest

from portcullis.commands.settings_sources import load
from tests.deploy.manifests import needs_kubectl, overlay_of_ones_own, resource, validate
from tests.deploy.promql import complaints, known, rules

ADAPTER = resource("autoscaling/prometheus-adapter-values.yaml")["rules"]["custom"]
MADE = {rule["name"]["as"]: rule for rule in ADAPTER}


def pod_metrics(autoscaler: dict) -> dict[str, float]:
    """Metric → target, of those that the adapter makes."""
    found = {}
    for metric in autoscaler["spec"]["metrics"]:
        if metric["type"] == "Pods":
            target = metric["pods"]["target"]["averageValue"]
            found[metric["pods"]["metric"]["name"]] = float(target.removesuffix("m")) / 1000
    return found


@pytest.mark.parametrize("name", MADE)
def test_the_adapter_asks_for_metrics_that_the_service_has(name):
    rule = MADE[name]
    series = re.match(r"\w+", rule["seriesQuery"])[0]
    assert re.match(rule["name"]["matches"], series)
    for expression in (rule["seriesQuery"], rule["metricsQuery"]):
        plain = expression.replace("<<.GroupBy>>", "namespace, pod").replace("<<.LabelMatchers>>", 'pod="a"')
        given = {metric: labels | {"namespace", "pod"} for metric, labels in known().items()}
        assert complaints(plain, given) == []


@needs_kubectl
def test_without_monitoring_the_cpu_overlay_scales_on_cores_alone(tmp_path):
    autoscaler = overlay_of_ones_own(tmp_path, "cpu")["HorizontalPodAutoscaler"]
    assert [metric["type"] for metric in autoscaler["spec"]["metrics"]] == ["Resource"]


@needs_kubectl
def test_on_a_cpu_the_wait_for_an_engine_is_added(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "cpu", "monitoring", "autoscaling/cpu")
    for document in resources.values():
        validate(document)
    targets = pod_metrics(resources["HorizontalPodAutoscaler"])
    assert targets.keys() <= MADE.keys()
    assert targets["portcullis_queue_wait_seconds"] < load({}, {}).overload_wait_seconds, (
        "under overload images wait about that long, not longer"
    )


@needs_kubectl
def test_on_a_gpu_the_device_and_the_decoding_decide(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "gpu", "monitoring", "autoscaling/gpu")
    for document in resources.values():
        validate(document)
    targets = pod_metrics(resources["HorizontalPodAutoscaler"])
    assert targets.keys() == {"portcullis_engine_utilisation", "portcullis_decode_wait_seconds"} <= MADE.keys()
    assert 0.5 < targets["portcullis_engine_utilisation"] < 0.9, "1 is all that a device can do"
    cores = [metric["resource"]["name"] for metric in resources["HorizontalPodAutoscaler"]["spec"]["metrics"][2:]]
    assert cores == ["cpu"], "small pictures are decoded with no wait that could be seen"
    assert "replicas" not in resources["Deployment"]["spec"], "the autoscaler owns the number"


@needs_kubectl
def test_keda_asks_for_what_the_recording_rules_write(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "gpu", "monitoring", "autoscaling/gpu-keda")
    for document in resources.values():
        validate(document)
    assert "replicas" not in resources["Deployment"]["spec"]
    scaled = resources["ScaledObject"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == resources["Deployment"]["metadata"]["name"]
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert [trigger["type"] for trigger in scaled["triggers"]] == ["prometheus", "prometheus", "cpu"]
    for trigger in scaled["triggers"][:2]:
        assert set(re.findall(r"portcullis:[\w:]+", trigger["metadata"]["query"])) <= recorded
        assert trigger["metricType"] == "AverageValue"
        assert trigger["metadata"]["query"].startswith("sum("), "KEDA divides by the number of pods"


@needs_kubectl
def test_without_an_autoscaler_a_gpu_overlay_has_two_pods(tmp_path):
    resources = overlay_of_ones_own(tmp_path, "gpu")
    assert resources["Deployment"]["spec"]["replicas"] == 2
    assert "HorizontalPodAutoscaler" not in resources
