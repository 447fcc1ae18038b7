"""Recording and alert rules, under the real promtool."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from deploy.generate import OPERATIONS, PROMETHEUS, ROOT
from portcullis.bundle.gate import P_VALUE_BUCKETS
from portcullis.drift.window import EMPTY_SHARE, psi
from tests.deploy.promql import complaints, known, rules

ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
UNIT_TESTS = sorted((PROMETHEUS / "tests").glob("*.test.yml"))
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.yml"
DRIFT = ROOT / "docs" / "drift.md"
LIVE_VIEW = ROOT / "service" / "portcullis" / "api" / "console" / "static" / "js" / "views" / "live.js"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is missing")
needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool (Debian: prometheus-alertmanager) is missing"
)


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_prometheus_accepts_the_configuration_and_its_rules():
    assert "SUCCESS" in promtool("check", "config", PROMETHEUS / "prometheus.yml")


@needs_promtool
@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.name)
def test_alerts_fire_and_stay_quiet_as_the_unit_tests_say(file):
    promtool("test", "rules", file)


@needs_amtool
def test_alertmanager_accepts_its_configuration():
    file = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
    done = subprocess.run(["amtool", "check-config", file], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_psi_is_a_marked_change_wherever_a_person_reads_of_it():
    marked = re.search(r"psi1h > (\S+)", ALERTS["PortcullisDriftPsi"]["expr"])[1]
    assert f"({marked} is a marked change)" in ALERTS["PortcullisDriftPsi"]["annotations"]["description"]
    for place in (DASHBOARD, DRIFT, LIVE_VIEW):
        assert f"above {marked} a marked change" in place.read_text(), place
    assert f"PSI above {marked} for" in OPERATIONS.read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_is_quiet(alert):
    expectations = [
        bool(case["exp_alerts"])
        for file in UNIT_TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]
    assert set(expectations) == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_is_wrong_how_urgent_and_what_to_do(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / path == OPERATIONS
    headings = re.findall(r"^#+ (.+)$", OPERATIONS.read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_runbooks_are_those_of_the_alerts():
    section = OPERATIONS.read_text().partition("## Alerts and runbooks\n")[2].partition("\n## ")[0]
    severities = dict(re.findall(r"^### (\w+)\n\n\*\*(\w+)\.\*\*", section, re.MULTILINE))
    assert severities == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}


def test_inhibitions_name_alerts_that_exist():
    text = (ROOT / "deploy" / "alertmanager" / "alertmanager.yml").read_text()
    assert set(re.findall(r"Portcullis\w+", text)) <= set(ALERTS)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_rule_asks_for_metrics_and_labels_that_the_service_has(rule):
    series = known() | {"up": {"job", "instance"}}
    assert complaints(rule["expr"], series) == []


def test_an_unknown_metric_or_label_would_be_found():
    assert complaints("sum by (colour) (rate(portcullis_predictions_total{verdikt='reject'}[5m]))", known()) == [
        "portcullis_predictions_total{verdikt}",
        "by (colour)",
    ]
    assert complaints("portcullis_prediction_total", known()) == ["portcullis_prediction_total"]


@needs_promtool
@pytest.mark.parametrize("scale", [(1, 1), (2, 1), (0, 3)], ids=["uniform", "tilted", "empty bins"])
def test_the_fleet_psi_is_that_of_the_formula(scale, tmp_path):
    """Two replicas' histograms, added up by Prometheus, against the formula in NumPy."""
    edges = [edge for edge in P_VALUE_BUCKETS if edge <= 1]
    widths = np.diff([0.0, *edges])
    below, above = scale
    weights = np.where(np.arange(len(edges)) < len(edges) // 2, below, above) * widths
    per_minute = np.round(100_000 * weights / weights.sum()).astype(int)
    shares = np.maximum(per_minute / per_minute.sum(), EMPTY_SHARE)
    expected = float(((shares - widths) * np.log(shares / widths)).sum())
    assert math.isclose(expected, psi(tuple(per_minute / per_minute.sum())), abs_tol=1e-12), "the service's own PSI"

    series = []
    for instance, part in (("a", 1), ("b", 3)):
        labels = f'job="portcullis", instance="{instance}", model="tiny", version="1"'
        for edge, count in zip([*edges, "+Inf"], [*per_minute.cumsum(), per_minute.sum()], strict=True):
            name = f'portcullis_score_p_value_bucket{{{labels}, le="{edge}"}}'
            series.append({"series": name, "values": f"0+{count * part}x70"})
        name = f"portcullis_score_p_value_count{{{labels}}}"
        series.append({"series": name, "values": f"0+{per_minute.sum() * part}x70"})
    found = _evaluate(tmp_path, series, "portcullis:score_p_value:psi1h")
    assert math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9)


def _evaluate(directory: Path, series: list[dict], expression: str) -> float:
    """What promtool computes: asked for NaN, it complains with the value that it found."""
    test = {
        "rule_files": [str(PROMETHEUS / "psi.rules.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": f"sum({expression})", "eval_time": "65m", "exp_samples": [{"labels": "{}", "value": -1}]}
                ],
            }
        ],
    }
    file = directory / "psi.test.yml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", file], check=False, capture_output=True, text=True)
    return float(re.search(r"got:\s*\{\} ([-+.\dEe]+)", done.stdout + done.stderr)[1])
