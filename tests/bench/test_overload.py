"""The benchmark of an overload in short: it runs, counts what it says, and keeps it. No figure is judged here."""

import json
import sys

import pytest

from bench import overload


def test_answers_and_refusals_are_told_apart():
    seen = overload.summarise([(200, 0.010), (200, 0.030), (503, 0.002)], seconds=2)
    assert seen == pytest.approx(
        {"offered": 1.5, "served": 1, "refused": 0.5, "p50_ms": 20, "p99_ms": 29.8, "refused_p99_ms": 2}
    )
    with pytest.raises(AssertionError, match="504"):
        overload.summarise([(504, 1.0)], seconds=2)


@pytest.mark.slow
def test_the_whole_service_is_measured_and_the_figures_are_kept(tmp_path, monkeypatch, capsys):
    command = ["bench.overload", "--per-image-ms", "20", "--loads", "3", "--seconds", "1", "--rounds", "1"]
    out = tmp_path / "overload.json"
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(out)])
    overload.main()
    kept = json.loads(out.read_text())
    assert kept["capacity"] == 50
    [row] = kept["rows"]
    assert (row["tree"], row["load"]) == ("this", 3)
    assert row["offered"] == pytest.approx(row["served"] + row["refused"])
    assert 0 < row["served"] <= row["offered"]
    assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert "| this | 3.0 |" in capsys.readouterr().out
