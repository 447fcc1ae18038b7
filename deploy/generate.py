"""Writes what follows from the code: PSI rules, dashboard, PrometheusRule, the tables of docs/operations.md.

`python -m deploy.generate` writes; a test compares, so that none of them goes stale.
"""

import re
from pathlib import Path

import yaml

from deploy import psi
from deploy.tables import metrics_table, settings_table
from portcullis.bundle.gate import P_VALUE_BUCKETS
from portcullis.drift.window import EMPTY_SHARE

ROOT = Path(__file__).parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULE_FILES = ("recording.rules.yml", "psi.rules.yml", "alerts.rules.yml")
OPERATIONS = ROOT / "docs" / "operations.md"


def documents() -> dict[Path, str]:
    """Every generated file with the text that it should have."""
    from deploy.dashboard import build as build_dashboard  # the rest of this module is read where the SDK is missing

    psi_rules = psi.rules(P_VALUE_BUCKETS, EMPTY_SHARE)
    return {
        PROMETHEUS / "psi.rules.yml": psi_rules,
        ROOT / "deploy" / "grafana" / "dashboards" / "portcullis.json": build_dashboard(),
        ROOT / "deploy" / "kubernetes" / "monitoring" / "prometheus-rule.yaml": _prometheus_rule(psi_rules),
        OPERATIONS: _with_tables(OPERATIONS.read_text()),
    }


def _prometheus_rule(psi_rules: str) -> str:
    """The same groups as the Prometheus operator's resource."""
    texts = [psi_rules if name == "psi.rules.yml" else (PROMETHEUS / name).read_text() for name in RULE_FILES]
    groups = [group for text in texts for group in yaml.safe_load(text)["groups"]]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "portcullis", "labels": {"app.kubernetes.io/name": "portcullis"}},
        "spec": {"groups": groups},
    }
    head = "# Written by `python -m deploy.generate` from deploy/prometheus/*.rules.yml; do not edit.\n"
    return head + yaml.safe_dump(resource, sort_keys=False, width=1000)


def _with_tables(text: str) -> str:
    for name, table in (("settings", settings_table()), ("metrics", metrics_table())):
        marked = re.compile(rf"(<!-- {name}: generated -->\n).*?(\n<!-- end -->)", re.DOTALL)
        if not marked.search(text):
            raise ValueError(f"docs/operations.md has no place marked for the table of {name}")
        text = marked.sub(lambda match, table=table: match[1] + table + match[2], text)
    return text


def main() -> None:
    for path, text in documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
