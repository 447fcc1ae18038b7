"""The page of a table: what it says of DisMax and of itself, its command, and its plots, all from the figures alone."""

import re
import shlex
import statistics
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench import method_rows
from portcullis_training.__main__ import build_parser, main
from portcullis_training.commands import overrides, parser
from portcullis_training.comparing import paper_plots
from portcullis_training.comparing.paper import table_config
from portcullis_training.comparing.paper_command import command_of
from portcullis_training.comparing.paper_page import _head, page, rows_of, standing
from portcullis_training.comparing.paper_plots import against_accuracy, by_tier, plots_of
from portcullis_training.comparing.paper_table import VARIANTS, Column, PaperTable, Row, Tiers, paper_rows
from portcullis_training.config import RunConfig
from portcullis_training.recipes import RECIPES
from tests.training.comparing.test_paper import found


def with_config(table: PaperTable, **fields: object) -> PaperTable:
    config = table.comparison.config.model_copy(update=fields)
    return table.model_copy(update={"comparison": table.comparison.model_copy(update={"config": config})})


def without(table: PaperTable, variant: str, seed: int) -> PaperTable:
    twins = tuple(twin for twin in table.comparison.twins if (twin.variant, twin.seed) != (variant, seed))
    return table.model_copy(update={"comparison": table.comparison.model_copy(update={"twins": twins})})


def test_where_dismax_stands_by_hand() -> None:
    """91 ± 1.4 against 90 ± 0.7 is the same, against 80 ± 0.7 it is not; a low ECE is the better one."""
    table = found("paper")
    rows = [row for row in paper_rows(table) if row.twins[0].variant != "isomaxplus"]
    high = {"softmax": [90, 91, 92], "dismax": [89.5, 90, 90.5], "dismax+fractional": [79, 80, 81]}
    low = {"softmax": [0.2, 0.2, 0.2], "dismax": [0.1, 0.1, 0.1], "dismax+fractional": [0.4, 0.4, 0.4]}

    def column(title: str, values: dict[str, list[float]], is_better_high: bool) -> Column:
        return Column(title, 1, lambda twin, row: values[twin.variant][twin.seed], is_better_high)

    lines = standing(rows, [column("right", high, True), column("error", low, False)])
    assert lines[2] == "Of 2 figures the best, or the same as the best by the rule above: DisMax in 2, DisMax† in 0."
    assert lines[4:-1] == [
        "| figure | best | DisMax | DisMax† |",
        "| --- | --- | --- | --- |",
        "| right | SoftMax, 91.0 | the same | behind by 11.0 |",
        "| error | DisMax, 0.1 | best | behind by 0.3 |",
    ]


def test_where_dismax_stands_counts_every_figure_of_both_tables() -> None:
    table = found("paper")
    lines, sets = page(table), len(table.tiers.specs)
    [said] = [line for line in lines if line.startswith("Of ")]
    assert said.startswith(f"Of {3 + 2 * sets} figures ")
    below = [line.split(" | ")[0][2:] for line in lines[lines.index("## Where DisMax stands") :]]
    expected = [f"{tier}: {name}, TNR@TPR95" for name, tier in table.tiers.by_set.items()]
    assert [title for title in below if title.endswith("TNR@TPR95")] == expected


def test_the_top_of_an_ablation_speaks_of_the_papers_ablation_and_of_no_method_that_neither_has() -> None:
    paper, ablation = (" ".join(_head(found(table))) for table in ("paper", "ablation"))
    assert "Its ablation is of CIFAR-100 alone (near: CIFAR-10;" in ablation
    assert "SNGP" in paper and "SNGP" not in ablation


@pytest.mark.parametrize("table", ["paper", "ablation"])
def test_the_top_of_the_page_says_whose_images_these_are(table: str) -> None:
    whole = with_config(found(table), data="npz:mine.npz")
    whole = whole.model_copy(update={"tiers": Tiers(near=("a",), far=("b", "c"), very_far=())})
    head = " ".join(_head(whole))
    assert "far: TinyImageNet, LSUN" in head
    assert head.count("here npz:mine.npz (near: a; far: b, c; very far: none).") == 1


def test_a_table_without_dismax_or_with_nothing_else_says_nothing_of_where_it_stands() -> None:
    rows = paper_rows(found("paper"))
    assert standing([row for row in rows if row.twins[0].variant == "softmax"], []) == []
    assert standing([row for row in rows if row.twins[0].variant.startswith("dismax")], []) == []


def test_a_table_that_is_not_whole_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = found("paper")
    names = tuple(dict.fromkeys(twin.variant for twin in table.comparison.twins))
    monkeypatch.setitem(VARIANTS, "paper", names)
    assert not any("Not the whole table" in line for line in page(table))
    lacking = without(without(table, "dismax", 1), "dismax", 2)
    monkeypatch.setitem(VARIANTS, "paper", (*names, "sngp"))
    assert "**Not the whole table**, without seed 1, 2: DisMax; without seed 0, 1, 2: SNGP." in page(lacking)


def parsed(lines: list[str]) -> tuple[RunConfig, dict[str, str]]:
    """What the command line makes of a command: a config, and what is said of the table."""
    words = shlex.split(re.sub(r"\\\n", "", "\n".join(lines)))
    assert words[:2] == ["portcullis-train", "compare"]
    namespace = parser.parse(build_parser(), words[1:])
    said = {name: getattr(namespace, name) for name in ("table", "seeds", "variants", "near", "far", "very_far")}
    tiers = Tiers(**{name: tuple(said[name].split()) for name in ("near", "far", "very_far")})
    return table_config(overrides.config_of(namespace), tiers), said


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"precision": "bfloat16", "epochs": 12, "progressive_resizing": ((0.3, 16), (0.6, 24))},
        {"name": "of-my-own", "weight_averaging": None, "decay_vectors": True, "class_names": ("a", "b c")},
        {"split_seed": 7, "milestones": (0.25, 0.5), "schedule": "step"},
    ],
)
def test_the_command_on_the_page_makes_the_very_table(fields: dict[str, object]) -> None:
    table = found("paper")
    table = with_config(table, **{"outside": tuple(f"npz:{name}.npz" for name in table.tiers.specs), "score": "own",
                                  "split_seed": 0, **fields})  # fmt: skip
    config, said = parsed(command_of(table))
    ours = {"method", "mixing", "members", "seed"}
    assert config.model_dump(exclude=ours) == table.comparison.config.model_dump(exclude=ours)
    assert (said["table"], said["seeds"]) == ("paper", "0,1,2")
    assert said["variants"].split(",") == list(dict.fromkeys(twin.variant for twin in table.comparison.twins))
    assert "\n".join(command_of(table)) in "\n".join(page(table))


def test_the_command_leaves_out_the_variants_that_the_table_has_by_itself() -> None:
    table = found("paper")
    first = tuple(twin for twin in table.comparison.twins if twin.variant == "softmax")
    begun = table.model_copy(update={"comparison": table.comparison.model_copy(update={"twins": first})})
    assert parsed(command_of(begun))[1]["variants"] is None, "the first of the list: it is on its way"
    assert command_of(begun)[0].startswith(f"portcullis-train compare --recipe {RECIPES['cifar10-resnet9'].name} ")


@pytest.mark.parametrize("table", ["paper", "ablation"])
def test_page_and_plots_are_made_again_from_the_figures_alone(table: str, tmp_path: Path) -> None:
    whole = found(table)
    figures = tmp_path / f"{table}.json"
    figures.write_text(whole.model_dump_json())
    assert main(["page", str(figures)]) == 0
    text = (tmp_path / f"{table}.md").read_text()
    assert text == "\n".join(page(whole)) + "\n"
    shown = re.findall(r"!\[[^]]+\]\((.+)\)", text)
    assert sorted(shown) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png")) and shown
    assert {name: (tmp_path / name).read_bytes() for name in shown} == plots_of(whole), "the same every time"


def test_what_is_no_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text(found("paper").comparison.model_dump_json())
    for name, message in (("results.json", "does not hold the figures of a table: table: "), ("none.json", "no file")):
        assert main(["page", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they were drawn, before they are files."""
    figures: list[Figure] = []
    monkeypatch.setattr(paper_plots.plots, "png", lambda figure: figures.append(figure) or b"")
    return figures


def means_of(row: Row, outside: str, tier: str, field: str) -> list[float]:
    score = row.score_at(tier)
    return [100 * getattr(twin.evaluation.outside[outside].by_score[score], field) for twin in row.twins]


def test_detection_by_tier_has_a_panel_a_set_and_each_methods_mean_and_deviation(drawn: list[Figure]) -> None:
    table = found("paper")
    by_tier(table)
    panels, rows = drawn[0].axes, paper_rows(table)
    assert len(panels) == len(table.tiers.specs)
    assert [label.get_text().split(" (")[0] for label in panels[0].get_yticklabels()] == [row.labels[0] for row in rows]
    fields = {"near": "aupr_outside_positive", "far": "auroc_inside_positive", "very far": "aupr_outside_positive"}
    for axes, (outside, tier) in zip(panels, table.tiers.by_set.items(), strict=True):
        for place, (row, bars) in enumerate(zip(rows, axes.containers, strict=True)):
            values = means_of(row, outside, tier, fields[tier])
            point, ends, _ = bars.lines
            assert point.get_xdata()[0] == pytest.approx(statistics.mean(values)) and point.get_ydata()[0] == place
            width = ends[1].get_xdata()[0] - ends[0].get_xdata()[0]
            assert width == pytest.approx(2 * statistics.stdev(values))


def test_accuracy_against_detection_has_a_dot_a_method(drawn: list[Figure]) -> None:
    table = found("paper")
    against_accuracy(table)
    (axes,) = drawn[0].axes
    for row, bars in zip(paper_rows(table), axes.containers, strict=True):
        accuracy = [100 * twin.evaluation.inside.accuracy for twin in row.twins]
        aurocs = [means_of(row, name, tier, "auroc_inside_positive") for name, tier in table.tiers.by_set.items()]
        assert bars.lines[0].get_xdata()[0] == pytest.approx(statistics.mean(accuracy))
        assert bars.lines[0].get_ydata()[0] == pytest.approx(statistics.mean(map(statistics.mean, aurocs)))


def test_rows_of_some_methods_are_those_of_the_table() -> None:
    table = found("paper")
    lines = page(table)
    titles, _, *chosen = rows_of(table, ("dismax", "dismax+fractional"))
    assert [line.split(" | ")[0] for line in chosen] == ["| DisMax", "| DisMax†"]
    assert all(line in lines for line in (titles, *chosen))
    assert method_rows.row(table, ("duq",)) == method_rows.row(None, ("dismax",)) == method_rows.UNMEASURED


def test_every_variant_of_the_table_has_its_row_in_the_section_of_its_method() -> None:
    assert sorted(name for names in method_rows.SECTIONS.values() for name in names) == sorted(VARIANTS["paper"])
