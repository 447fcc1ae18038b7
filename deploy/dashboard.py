"""The Grafana dashboard: grafana/dashboard.yml says what is shown, Grafana's own SDK writes what Grafana reads."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import StackingConfig, VizTooltipOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

CONTENT = Path(__file__).parent / "grafana" / "dashboard.yml"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
VARIABLES = ("job", "model", "version")
SHORTHAND = {
    "MODEL": 'job=~"$job", model=~"$model", version=~"$version"',
    "JOB": 'job=~"$job"',
    "RATE": "[$__rate_interval]",
}

Spec = Mapping[str, Any]


def build() -> str:
    """The dashboard as the text of its file."""
    board = (
        boards.Dashboard("Portcullis")
        .uid("portcullis")
        .description("Traffic, verdicts, drift, latency and load of an image classifier that knows when not to answer")
        .tags(["portcullis"])
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .readonly()
        .annotation(_alerts())
        .variables([_variable(name) for name in VARIABLES])
    )
    for row in yaml.safe_load(CONTENT.read_text()):
        board = board.with_row(boards.Row(row["row"]))
        for spec in row["panels"]:
            board = board.with_panel(_panel(spec))
    built = board.build()
    for number, panel in enumerate(built.panels or [], start=1):
        panel.id_val = number  # a link to one panel stays the same from load to load
    plain: Any = json.loads(json.dumps(built, cls=JSONEncoder))
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"


def _variable(name: str) -> boards.QueryVariable:
    return (
        boards.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(f"label_values(portcullis_model_info, {name})")
        .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(VariableOption(text="All", value="$__all", selected=True))
    )


def _alerts() -> boards.AnnotationQuery:
    """Firing alerts drawn into every panel: what else moved at that time is then plain to see."""
    query = boards.AnnotationQuery().name("Alerts").datasource(SOURCE).enable(True).icon_color("red")
    query.build().expr = 'ALERTS{alertname=~"Portcullis.*", alertstate="firing"}'
    return query


# -- kinds of panel --------------------------------------------------------------------------------------------------


def _panel(spec: Spec) -> Any:
    kind = next(kind for kind in KINDS if kind in spec)
    panel = KINDS[kind](spec).title(spec[kind]).description(spec["text"]).datasource(SOURCE)
    return panel.height(4 if kind == "number" else 8).span(spec.get("span", 4 if kind == "number" else 8))


def _lines(spec: Spec) -> timeseries.Panel:
    targets = [
        _query(expression).legend_format(legend).ref_id(letter)
        for letter, (legend, expression) in zip("ABCDEFGH", spec["queries"].items(), strict=False)
    ]
    panel = timeseries.Panel().unit(spec["unit"]).fill_opacity(5).targets([*targets])
    panel = panel.tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    if not spec.get("signed"):
        panel = panel.min(0)
    return panel.stacking(StackingConfig().mode(StackingMode.NORMAL)) if spec.get("stacked") else panel


def _heat(spec: Spec) -> heatmap.Panel:
    return (
        heatmap.Panel()
        .calculate(False)  # the histogram's own buckets
        .y_axis(heatmap.YAxisConfig().unit(spec["unit"]))
        .color(heatmap.HeatmapColorOptions().scheme("Oranges").steps(64).exponent(0.5))
        .targets([_query(spec["query"]).legend_format("{{le}}").format(PromQueryFormat.HEATMAP)])
    )


def _number(spec: Spec) -> stat.Panel:
    panel = stat.Panel().unit(spec["unit"]).targets([_query(spec["query"])])
    if "limits" not in spec:
        return panel
    colours = zip((None, *spec["limits"]), ("green", "yellow", "red"), strict=True)
    steps = [Threshold(value=value, color=colour) for value, colour in colours]
    return panel.thresholds(boards.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))


def _table(spec: Spec) -> table.Panel:
    query = _query(spec["query"]).format(PromQueryFormat.TABLE).instant()
    hidden = dict.fromkeys(("Time", "__name__"), True)
    organise = DataTransformerConfig(id_val="organize", options={"excludeByName": hidden})
    return table.Panel().targets([query]).transformations([organise])


KINDS: dict[str, Callable[[Spec], Any]] = {"lines": _lines, "heat": _heat, "number": _number, "table": _table}


def _query(expression: str) -> prometheus.Dataquery:
    for short, long in SHORTHAND.items():
        expression = expression.replace(short, long)
    return prometheus.Dataquery().expr(expression).range().ref_id("A")
