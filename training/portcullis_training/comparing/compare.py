"""Compare methods: twins with the same backbone, schedule, seed and budget, several seeds, resumable.

Every twin is an ordinary run, trained and measured by the same stages as any other; what is already done is not done
again. The result is one JSON file, one Markdown page and its plots.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from portcullis_training import methods
from portcullis_training.comparing.cells import place, spread
from portcullis_training.config import RunConfig, make_config, variant_name
from portcullis_training.data import outside_specs
from portcullis_training.errors import ConfigError, FitError
from portcullis_training.exporting.provenance import current_commit, library_versions, portable_config
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.members import member_seeds
from portcullis_training.fitting.preparation import refuse_what_the_method_cannot
from portcullis_training.fitting.staged import is_trained, train
from portcullis_training.measuring.calibration import calibrate, load_calibration
from portcullis_training.measuring.evaluation import Evaluation, evaluate, load_evaluation
from portcullis_training.measuring.posthoc import evaluate_posthoc
from portcullis_training.measuring.temperature import CalibrationError
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run, create_run
from portcullis_training.runs.exclusive import alone

VARIANT = re.compile(r"(?P<method>[a-z_0-9]+?)(\+(?P<mixing>[a-z]+))?([×x](?P<members>[1-9][0-9]?))?")
MIXING_TITLES = {"none": "", "fractional": "†", "cutmix": ", CutMix"}
RESULTS_FILE = "results.json"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """A method, how images are mixed, and how many networks: `dismax+fractional` is the paper's DisMax†."""

    method: str
    mixing: str = "none"
    members: int = 1

    @property
    def name(self) -> str:
        """As it is asked for."""
        return variant_name(self.method, self.mixing, self.members)

    @property
    def title(self) -> str:
        """As tables print it."""
        members = f" ×{self.members}" if self.members > 1 else ""
        return methods.find(self.method).title + MIXING_TITLES[self.mixing] + members


class Twin(BaseModel):
    """One trained and measured twin."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    title: str
    seed: int
    temperature: float
    fit_seconds: float
    evaluation: Evaluation
    """With the post-hoc scores among the others where the method is SoftMax."""


class Comparison(BaseModel):
    """What results.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: RunConfig
    """What all twins share; method, regulariser and seed differ."""
    seeds: tuple[int, ...]
    commit: str
    libraries: dict[str, str]
    twins: tuple[Twin, ...]


def parse_variant(name: str) -> Variant:
    """`dismax`, `softmax+fractional`, `softmax×5` …; what is unknown is refused with what exists."""
    found = VARIANT.fullmatch(name)
    if found is None:
        raise ConfigError(f"expected method[+mixing][×M], such as softmax+cutmix×5, got {name!r}")
    mixing = found["mixing"] or "none"
    if mixing not in MIXING_TITLES:
        raise ConfigError(f"{name}: expected +fractional, +cutmix or nothing, got +{mixing}")
    methods.find(found["method"])
    return Variant(found["method"], mixing, int(found["members"] or 1))


def parse_numbers(text: str, meaning: str, example: str) -> list[int]:
    """`0,1,2` as numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"expected {meaning} by commas, such as {example}, got {text!r}") from None


def compare(
    base: RunConfig, variants: Sequence[Variant], seeds: Sequence[int], runs: Path, output: Path, say: Say
) -> Comparison:
    """Train and measure every variant with every seed, then write results.json, results.md and plots to `output`."""
    from portcullis_training.comparing.report import write_report

    comparison, runs_of_first_seed = train_twins(base, variants, seeds, runs, say)
    output.mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / RESULTS_FILE, comparison.model_dump_json(indent=1) + "\n")
    write_report(comparison, runs_of_first_seed, output)
    return comparison


def train_twins(
    base: RunConfig,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    runs: Path,
    say: Say,
    tell: Callable[[Comparison], None] = lambda comparison: None,
    known: Sequence[Twin] = (),
) -> tuple[Comparison, dict[str, Run]]:
    """Every variant with every seed, trained and measured, and the run of each method's first seed by its title.

    `tell` is given what there is after each of them, so that an early end loses nothing. One that diverges, or has no
    temperature, is left for the end. What is `known`, from another machine, is taken as it is; it has no run here.
    """
    _refuse_now(base, variants, seeds)
    # Seed by seed: after the first one there is a table already.
    cells = [(variant, seed) for seed in seeds for variant in variants]
    found = {(twin.variant, twin.seed): twin for twin in known}
    twins = {cell: found[name] for cell in cells if (name := (cell[0].name, cell[1])) in found}
    here = {cell: create_run(runs, twin_config(base, *cell)) for cell in cells if cell not in twins}
    failed = []
    for variant, seed in spread(list(here.items())):
        run = here[variant, seed]
        say(f"{run.config.name}: {variant.title}, seed {seed}")
        try:
            twins[variant, seed] = _measure(run, base, variant)
        except (FitError, CalibrationError) as error:  # of this cell alone: what took hours beside it stands
            failed.append(run.config.name)
            say(f"{run.config.name} has no figures: {error}")
            continue
        tell(_comparison(base, seeds, [twins[cell] for cell in cells if cell in twins]))
    if failed:
        raise FitError(f"no figures of {', '.join(failed)}, for the reasons above; all others are measured and kept")
    runs_of_first_seed = {variant.title: here[variant, seed] for variant, seed in here if seed == seeds[0]}
    return _comparison(base, seeds, [twins[cell] for cell in cells]), runs_of_first_seed


def _refuse_now(base: RunConfig, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """What would be refused after hours, or be counted twice."""
    names = [variant.name for variant in variants]
    for meaning, listed in (("variants", names), ("seeds", list(seeds))):
        if not listed or len(set(listed)) != len(listed):  # a cell counted twice would narrow the deviation
            raise ConfigError(f"expected {meaning}, each once, got {', '.join(map(str, listed)) or 'none'}")
    outside_specs(base.outside)
    for variant in variants:
        config = make_config(twin_config(base, variant, seeds[0]).model_dump())  # a copy is not checked
        refuse_what_the_method_cannot(methods.find(variant.method), config)


def _comparison(base: RunConfig, seeds: Sequence[int], twins: Sequence[Twin]) -> Comparison:
    return Comparison(
        config=portable_config(base),
        seeds=tuple(seeds),
        commit=current_commit(Path(__file__).parent),
        libraries=library_versions(),
        twins=tuple(twins),
    )


def twin_config(base: RunConfig, variant: Variant, seed: int) -> RunConfig:
    """The same run but for its method, mixing, members and seed."""
    return base.model_copy(
        update={
            "name": f"{base.name}-{variant.name.replace('+', '-').replace('×', '-x')}-seed{seed}",
            "method": variant.method,
            "mixing": variant.mixing,
            "members": variant.members,
            "seed": seed,
        }
    )


def _measure(run: Run, base: RunConfig, variant: Variant) -> Twin:
    if not is_trained(run):
        train(run, members=_shared_members(run, base, variant))
    trained = open_trained(run)
    evaluation = _evaluated(trained)
    if variant.method == "softmax" and variant.members == 1:
        evaluation = _with_posthoc(evaluation, trained)
    return Twin(
        variant=variant.name,
        title=variant.title,
        seed=run.config.seed,
        temperature=load_calibration(trained).temperature,
        fit_seconds=sum(row["seconds"] for row in checkpoint.load(run.checkpoint_path).history),
        evaluation=evaluation,
    )


def _shared_members(run: Run, base: RunConfig, variant: Variant) -> list[Run]:
    """Of an ensemble: the twins of its members' seeds, trained, where all have one split; else it has its own."""
    if variant.members == 1 or base.split_seed is None:
        return []
    single = dataclasses.replace(variant, members=1)
    members = [create_run(run.directory.parent, twin_config(base, single, seed)) for seed in member_seeds(run.config)]
    for member in members:
        with alone(place(member)):  # another process may be training it as a cell of its own
            if not is_trained(member):
                train(member)
    return members


def _evaluated(trained: Trained) -> Evaluation:
    """The figures of these weights and outside sets, measured now unless they were before."""
    try:
        load_calibration(trained)
    except ConfigError:  # not yet, or of other weights
        calibrate(trained.run)
    try:
        return load_evaluation(trained)
    except ConfigError:
        return evaluate(trained.run)


def _with_posthoc(evaluation: Evaluation, trained: Trained) -> Evaluation:
    posthoc = evaluate_posthoc(trained)
    outside = {
        name: figures.model_copy(update={"by_score": {**figures.by_score, **posthoc[name]}})
        for name, figures in evaluation.outside.items()
    }
    return evaluation.model_copy(update={"outside": outside})
