"""A comparison of twins, whole: trained, measured, written, and resumed without training again."""

import json
from pathlib import Path

import pytest

from portcullis_training.comparing import compare as comparing
from portcullis_training.comparing import report as comparison_report
from portcullis_training.comparing.compare import compare, parse_variant, twin_config
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES

BASE = RECIPES["digits"].model_copy(
    update={
        "name": "tiny-twins",
        "mixing": "none",
        "epochs": 2,
        "outside": ("noise:uniform",),
        "num_workers": 0,
    }
)


def test_twins_differ_in_nothing_but_method_regulariser_seed_and_name() -> None:
    config = twin_config(BASE, parse_variant("dismax+fractional"), 3)
    changed = {name for name, value in config if value != getattr(BASE, name)}
    assert changed == {"name", "mixing", "seed"}
    assert (config.method, config.mixing, config.seed) == ("dismax", "fractional", 3)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match="dismax, duq, godin"):
        parse_variant("dismaxx+fractional")
    with pytest.raises(ConfigError, match=r"\+fractional, \+cutmix or nothing, got \+fraction"):
        parse_variant("dismax+fraction")
    with pytest.raises(ConfigError, match=r"method\[\+mixing\]\[×M\]"):
        parse_variant("dismax×")


@pytest.mark.parametrize(
    ("name", "method", "mixing", "members", "title"),
    [
        ("isomax", "isomax", "none", 1, "IsoMax"),
        ("isomaxplus+cutmix", "isomaxplus", "cutmix", 1, "IsoMax+, CutMix"),
        ("softmax×5", "softmax", "none", 5, "SoftMax ×5"),
        ("dismax+fractionalx12", "dismax", "fractional", 12, "DisMax† ×12"),
    ],
)
def test_a_variant_is_a_method_a_mixing_and_members(
    name: str, method: str, mixing: str, members: int, title: str
) -> None:
    variant = parse_variant(name)
    assert (variant.method, variant.mixing, variant.members) == (method, mixing, members)
    assert variant.title == title
    assert parse_variant(variant.name) == variant


@pytest.mark.parametrize(
    ("variants", "seeds", "fields", "message"),
    [
        ("softmax,duq+cutmix", [0], {}, "mixing: DUQ needs one label an image"),
        ("softmax,godin_preprocessing×2", [0], {}, "members: GODIN, preprocessing looks at every image twice"),
        ("softmax,duq", [0], {"compile": True}, "compile: DUQ takes gradients of gradients"),
        ("softmax,softmax×2", [0], {"frozen": True, "pretrained_weights": "download"}, "the same frozen backbone"),
        ("softmax,dismax,softmax+none", [0], {}, "expected variants, each once, got softmax, dismax, softmax"),
        ("softmax", [0, 1, 0], {}, "expected seeds, each once, got 0, 1, 0"),
        ("softmax", [], {}, "expected seeds, each once, got none"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(
    variants: str, seeds: list[int], fields: dict[str, object], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(comparing, "train", lambda run, **options: pytest.fail(f"{run.config.name} is trained"))
    parsed = [parse_variant(name) for name in variants.split(",")]
    base = BASE.model_copy(update=fields)
    with pytest.raises(ConfigError, match=message):
        comparing.train_twins(base, parsed, seeds, tmp_path, lambda line: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_comparison_is_written_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [parse_variant("softmax"), parse_variant("dismax+fractional")]
    first = compare(BASE, variants, [0], tmp_path / "runs", tmp_path / "results", lambda line: None)
    page = (tmp_path / "results" / "results.md").read_text()
    softmax, dismax = first.twins
    assert f"| SoftMax | {100 * softmax.evaluation.inside.accuracy:.1f} |" in page
    assert {"energy", "knn", "posthoc_max_logit"} <= set(softmax.evaluation.outside["noise:uniform"].by_score)
    for twin, own in ((softmax, "Energy, post-hoc"), (dismax, "MMLES")):  # the same additions to the score of each
        auroc = twin.evaluation.outside["noise:uniform"].by_score["fitted"].auroc_inside_positive
        assert f"| {twin.title} | **fitted score** | {100 * auroc:.1f} |" in page
        overview = page.partition("## AUROC at a glance")[2].partition("\n## ")[0]
        for score in ("fitted score", own, "Mahalanobis, features", "Mahalanobis, middle block", "neighbours"):
            assert overview.count(f"| {twin.title} | {score} | ") == 1
    assert "| SoftMax | KNN, post-hoc | " in page
    shown = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert len(shown) == 9
    assert all((tmp_path / "results" / plot).read_bytes().startswith(b"\x89PNG") for plot in shown)
    assert len(json.loads((tmp_path / "results" / "results.json").read_text())["twins"]) == 2

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("done already")

    for stage in ("train", "calibrate", "evaluate"):
        monkeypatch.setattr(comparing, stage, refuse)
    monkeypatch.setattr(comparison_report, "write_report", lambda *arguments: None)  # seconds of plotting, seen above
    again = compare(BASE, variants, [0], tmp_path / "runs", tmp_path / "results", lambda line: None)
    assert again.twins == first.twins
