"""What an expression asks for: metrics with the labels they are matched by, and the labels it groups by."""

import functools
import re
from pathlib import Path

import yaml

from deploy.generate import PROMETHEUS, RULE_FILES
from deploy.tables import metrics

TARGET_LABELS = {"job", "instance"}
_SELECTOR = re.compile(r"\b(portcullis[_:][a-zA-Z0-9_:]*)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    return [(name, set(_MATCHER.findall(matchers or ""))) for name, matchers in _SELECTOR.findall(expression)]


def groupings(expression: str) -> set[str]:
    lists = ",".join(_GROUPING.findall(expression))
    return {label.strip() for label in lists.split(",")} - {""}


@functools.cache
def rules() -> list[dict]:
    """Every rule, in the order of evaluation."""
    texts = [(Path(PROMETHEUS) / file).read_text() for file in RULE_FILES]
    return [rule for text in texts for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@functools.cache
def known() -> dict[str, set[str]]:
    """Every series name that can be asked for, declared or recorded, with its labels."""
    found: dict[str, set[str]] = {}
    for name, kind, labels, _ in metrics():
        endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        for ending in endings:
            found[name + ending] = {*labels, *TARGET_LABELS, *({"le"} if ending == "_bucket" else set())}
    for rule in rules():
        if "record" in rule:
            inherited = groupings(rule["expr"]) | set(rule.get("labels", {}))
            for name, _ in selectors(rule["expr"]):
                inherited |= found.get(name, set()) if not groupings(rule["expr"]) else set()
            found.setdefault(rule["record"], set()).update(inherited)
    return found


def complaints(expression: str, series: dict[str, set[str]]) -> list[str]:
    """What an expression names that is not there; empty is good."""
    wrong, reachable = [], set()
    for name, labels in selectors(expression):
        if name not in series:
            wrong.append(name)
            continue
        reachable |= series[name]
        wrong += [f"{name}{{{label}}}" for label in labels - series[name]]
    return wrong + [f"by ({label})" for label in groupings(expression) - reachable]
