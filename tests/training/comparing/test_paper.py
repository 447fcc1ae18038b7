"""The paper's table: its columns and scores, its rule for what is the same, and cells that are shared and resumed."""

import statistics
import threading
from pathlib import Path

import pytest

from portcullis_training.comparing import compare as comparing
from portcullis_training.comparing.cells import place, spread
from portcullis_training.comparing.compare import Comparison, Twin, Variant, parse_variant
from portcullis_training.comparing.paper import read_table, table_config, tabulate, tiers_of
from portcullis_training.comparing.paper_page import page
from portcullis_training.comparing.paper_table import VARIANTS, PaperTable, Tiers, bold_rows, paper_scores
from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError, FitError
from portcullis_training.fitting.fit import Interrupted
from portcullis_training.measuring.temperature import CalibrationError
from portcullis_training.runs.directory import Run, create_run
from portcullis_training.runs.exclusive import alone
from tests.training.comparing.test_compare import BASE

TWINS = Path(__file__).parents[3] / "docs" / "results" / "twins" / "results.json"
TINY = BASE.model_copy(update={"backbone": "small:4-8-16", "epochs": 2})
TIERS = Tiers(near=("shuffled",), far=("noise:smooth",), very_far=("noise:uniform",))


def found(table: str) -> PaperTable:
    """Real figures of three seeds."""
    comparison = Comparison.model_validate_json(TWINS.read_bytes())
    near, *far, very_far = comparison.twins[0].evaluation.outside
    tiers = Tiers(near=(near,), far=tuple(far), very_far=(very_far,))
    return PaperTable.model_validate({"table": table, "tiers": tiers, "comparison": comparison})


def test_what_differs_by_less_than_the_sum_of_the_margins_is_as_good_as_the_best() -> None:
    best, same, other = [90.0, 92.0], [87.0, 90.0], [85.0, 87.0]  # 91 ± 1.41, 88.5 ± 2.12, 86 ± 1.41
    assert bold_rows([same, best, other, []], is_better_high=True) == [True, True, False, False]
    assert bold_rows([same, best, other], is_better_high=False) == [True, False, True]
    assert bold_rows([[5.0], [5.0], [4.9]], is_better_high=True) == [True, True, False]  # one seed: no margin


def test_each_method_has_the_scores_that_the_paper_has_for_it() -> None:
    assert paper_scores("dismax+fractional") == ("max_probability", "mmles")
    assert paper_scores("softmax") == paper_scores("softmax×5") == ("max_probability", "max_probability")
    assert paper_scores("isomaxplus+cutmix") == ("max_logit", "max_logit")
    assert paper_scores("isomax")[0] == "negative_entropy" and paper_scores("godin")[0] == "max_h"


def test_the_columns_are_those_of_the_paper_and_the_figures_those_measured() -> None:
    table = found("paper")
    near, *_, very_far = table.tiers.specs
    lines = page(table)
    header = next(line for line in lines if line.startswith("| method | score near / far |"))
    assert header.split(" | ")[2:6] == ["accuracy %", "efficiency %", "ECE", f"near: {near}, AUPR out"]
    row = next(line for line in lines if line.startswith("| DisMax | MPS / MMLES |")).split(" | ")
    twins = [twin for twin in table.comparison.twins if twin.variant == "dismax"]
    by_set = [twin.evaluation.outside for twin in twins]
    mps = [100 * one[near].by_score["max_probability"].aupr_outside_positive for one in by_set]
    mmles = [100 * one[very_far].by_score["mmles"].aupr_outside_positive for one in by_set]
    assert row[5].strip("* ") == f"{statistics.mean(mps):.1f} ± {statistics.stdev(mps):.1f}"
    assert row[-1].strip("* |") == f"{statistics.mean(mmles):.1f} ± {statistics.stdev(mmles):.1f}"
    costs = [100 / twin.evaluation.inference_cost_relative_to_softmax["batch of 32"] for twin in twins]
    assert row[3].strip("* ") == f"{statistics.mean(costs):.1f} ± {statistics.stdev(costs):.1f}"
    assert any(line.startswith(f"| SoftMax | KNN, post-hoc | {near} |") for line in lines), "the long form has all"


def test_the_ablation_has_every_method_by_every_score() -> None:
    lines = page(found("ablation"))
    assert [line.split(" | ")[1] for line in lines if line.startswith("| DisMax† | M")][:4] == [
        "MPS", "MDS", "MMLES", "MPS / MMLES",
    ]  # fmt: skip


def test_tiers_come_from_a_recipes_outside_sets_and_too_few_are_refused() -> None:
    assert tiers_of(("a", "b", "c", "d")) == Tiers(near=("a",), far=("b", "c"), very_far=("d",))
    with pytest.raises(ConfigError, match="--near, --far and --very-far"):
        tiers_of(("a", "b"))


def test_every_variant_of_the_tables_exists() -> None:
    assert all(parse_variant(name).name == name for names in VARIANTS.values() for name in names)


def test_a_cell_that_another_process_has_comes_last(tmp_path: Path) -> None:
    runs = [Run(tmp_path / name, TINY) for name in "abc"]
    seen, has_first, may_leave = [], threading.Event(), threading.Event()

    def other() -> None:
        with alone(place(runs[0])):
            has_first.set()
            may_leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    has_first.wait(60)
    for name in spread(list(zip("abc", runs, strict=True))):
        seen.append(name)
        if len(seen) == 2:
            may_leave.set()
    thread.join()
    assert seen == ["b", "c", "a"]


@pytest.mark.parametrize("error", [CalibrationError("no temperature"), FitError("the weights have diverged")])
def test_a_cell_that_comes_to_nothing_costs_no_other_one(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = {twin.variant: twin for twin in found("paper").comparison.twins if twin.seed == 0}

    def measure(run: Run, base: RunConfig, variant: Variant) -> Twin:
        if variant.method == "softmax":
            raise error
        return twins[variant.name]

    monkeypatch.setattr(comparing, "_measure", measure)
    said: list[str] = []
    kept: list[Comparison] = []
    variants = [parse_variant(name) for name in ("isomaxplus", "softmax", "dismax")]
    with pytest.raises(FitError, match="no figures of tiny-twins-softmax-seed0, for"):
        comparing.train_twins(TINY, variants, [0], tmp_path, said.append, kept.append)
    assert [twin.variant for twin in kept[-1].twins] == ["isomaxplus", "dismax"]
    assert f"tiny-twins-softmax-seed0 has no figures: {error}" in said


@pytest.mark.slow
def test_a_table_is_written_after_each_cell_resumed_and_its_ensemble_made_of_its_twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = [parse_variant("softmax"), parse_variant("softmax×2")]
    train, trained = comparing.train, []

    def stop_at_the_ensemble(run: Run, **options: object) -> object:
        if run.config.members > 1:
            raise Interrupted
        trained.append(run.config.name)
        return train(run, show_progress=False)

    monkeypatch.setattr(comparing, "train", stop_at_the_ensemble)
    arguments = (TINY, "paper", TIERS, variants, [0], tmp_path / "runs", tmp_path / "results", lambda line: None)
    with pytest.raises(Interrupted):
        tabulate(*arguments)  # type: ignore[arg-type]
    assert trained == ["tiny-twins-softmax-seed0", "tiny-twins-softmax-seed1"]
    assert "| SoftMax | MPS | " in (tmp_path / "results" / "paper.md").read_text()
    first = (tmp_path / "results" / "plots" / "paper-detection.png").read_bytes()

    monkeypatch.setattr(comparing, "train", train)
    written = tabulate(*arguments)  # type: ignore[arg-type]
    assert [twin.title for twin in written.comparison.twins] == ["SoftMax", "SoftMax ×2"]
    assert not (tmp_path / "runs" / "tiny-twins-softmax-x2-seed0" / "members").exists(), "the twins are its members"
    text = (tmp_path / "results" / "paper.md").read_text()
    assert text == "\n".join(page(written)) + "\n"
    assert (tmp_path / "results" / "plots" / "paper-detection.png").read_bytes() != first, "drawn anew with each cell"
    single, ensemble = written.comparison.twins
    cost = ensemble.evaluation.inference_cost_relative_to_softmax["batch of 32"]
    assert cost > 1.3 > single.evaluation.inference_cost_relative_to_softmax["batch of 32"]
    create_run(tmp_path / "runs", table_config(TINY, TIERS))  # nothing of this machine is left in the page
    assert str(tmp_path) not in text


@pytest.mark.slow
def test_cells_of_another_machine_are_not_trained_again_and_those_of_another_config_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants, kept = [parse_variant("softmax"), parse_variant("dismax")], tmp_path / "there" / "paper.json"
    tabulate(TINY, "paper", TIERS, variants[:1], [0], tmp_path / "runs", kept.parent, lambda line: None)
    said: list[str] = []
    here = tmp_path / "here"
    arguments = (TINY, "paper", TIERS, variants, [0], here / "runs", here, said.append, [kept])
    both = tabulate(*arguments)  # type: ignore[arg-type]
    assert [line.split(":")[0] for line in said] == ["tiny-twins-dismax-seed0"]
    assert [twin.variant for twin in both.comparison.twins] == ["softmax", "dismax"]
    assert both.comparison.twins[0] == read_table(kept).comparison.twins[0]
    assert read_table(here / "paper.json") == both

    monkeypatch.setattr(comparing, "train", lambda run, **options: pytest.fail(f"{run.config.name} is known"))
    arguments = (*arguments[:5], tmp_path / "third" / "runs", tmp_path / "third", said.append, [here / "paper.json"])
    assert tabulate(*arguments).comparison.twins == both.comparison.twins  # type: ignore[arg-type]
    said.clear()
    arguments = (TINY, "paper", TIERS, variants[1:], [0], tmp_path / "third" / "runs", tmp_path / "fourth")
    one = tabulate(*arguments, said.append, [here / "paper.json"])  # type: ignore[arg-type]
    assert [twin.variant for twin in one.comparison.twins] == ["dismax"]
    assert said == [f"{here}/paper.json: left out, as --variants and --seeds do not ask for them: SoftMax, seed 0"]
    other = TINY.model_copy(update={"epochs": 3})
    with pytest.raises(ConfigError, match="another config: epochs is 2 there and 3 here"):
        tabulate(other, *arguments[1:], said.append, [here / "paper.json"])  # type: ignore[arg-type]
