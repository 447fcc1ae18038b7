"""Tables of docs/operations.md that follow from the code: every setting, every metric."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo

from portcullis.environment import PREFIX
from portcullis.settings import Settings, default_text
from portcullis.telemetry.collectors import ServedCollector, StoreCollector
from portcullis.telemetry.drift_collector import DriftCollector
from portcullis.telemetry.instruments import Metrics

NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}
SUFFIX = {"counter": "_total"}


def settings_table() -> str:
    """Setting, variable, type, default, meaning; a flag is the name with dashes."""
    rows = [
        (f"`{name}`", f"`{PREFIX}{name.upper()}`", _type(field.annotation), _default(field), field.description)
        for name, field in Settings.model_fields.items()
    ]
    return _table(("setting", "variable", "type", "default", "meaning"), rows)


def metrics_table() -> str:
    """Metric, kind, labels, meaning."""
    rows = [(f"`{name}`", kind, ", ".join(map("`{}`".format, labels)), text) for name, kind, labels, text in metrics()]
    return _table(("metric", "kind", "labels", "meaning"), rows)


def metrics() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Every metric that `/metrics` may show."""
    registry = CollectorRegistry()
    instruments = Metrics(registry)
    for instrument in vars(instruments).values():
        if isinstance(instrument, MetricWrapperBase):
            (family,) = instrument.describe()
            yield family.name + SUFFIX.get(family.type, ""), family.type, instrument._labelnames, family.documentation
    for family in (*DriftCollector(list).collect(), *ServedCollector(list).collect(), *StoreCollector(list).collect()):
        yield family.name, family.type, tuple(getattr(family, "_labelnames")), family.documentation  # noqa: B009


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("<", "&lt;") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines)


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, types.UnionType):
        return _type(next(kind for kind in inner if kind is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    return NAMES.get(annotation, "text")


def _default(field: FieldInfo) -> str:
    text = default_text(field)
    return f"`{text}`" if text else "none"
