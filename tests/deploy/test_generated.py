"""What is generated from the code is what the code generates."""

import re

import pytest

from portcullis.settings import Settings

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk, which writes the dashboard, is missing")

from deploy.generate import OPERATIONS, ROOT, documents
from deploy.tables import metrics_table, settings_table


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_files_are_fresh(path):
    assert path.read_text() == documents()[path], "stale: run `python -m deploy.generate`"


def test_the_settings_table_has_every_setting_with_its_default_and_meaning():
    rows = {line.split("|")[1].strip(" `"): line for line in settings_table().splitlines()[2:]}
    assert list(rows) == list(Settings.model_fields)
    assert "`PORTCULLIS_PORT` | integer | `8000` | Port to listen on" in rows["port"]
    assert "`json` or `text`" in rows["log_format"]
    assert "| list of text | none |" in rows["serve"]
    assert all(line.count(" | ") == 4 for line in rows.values())


def test_the_metrics_table_has_every_metric_of_the_live_output():
    table = metrics_table()
    assert "| `portcullis_predictions_total` | counter | `model`, `version`, `verdict` |" in table
    assert "| `portcullis_drift_psi` | gauge | `model`, `version` |" in table
    assert "| `portcullis_score_quantile` | gauge | `model`, `version`, `level` |" in table
    assert "| `portcullis_stage_seconds` | histogram | `stage` |" in table


def test_every_link_of_the_operations_page_leads_somewhere():
    text = OPERATIONS.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        assert (OPERATIONS.parent / path).exists() if path else anchor in anchors, target
