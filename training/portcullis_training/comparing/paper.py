"""The paper's tables on any data: which variants, against which outside sets, trained cell by cell."""

from collections.abc import Sequence
from pathlib import Path

from portcullis_training.comparing.compare import Comparison, Say, Variant, train_twins
from portcullis_training.comparing.paper_page import PaperTable, Table, Tiers, page
from portcullis_training.data.outside import short_name
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RunConfig
from portcullis_training.runs import atomic

VARIANTS: dict[str, tuple[str, ...]] = {
    "paper": (
        "softmax", "softmax+fractional", "isomax", "isomaxplus", "isomaxplus+cutmix", "scaled_cosine", "godin",
        "godin_dropout", "godin_preprocessing", "duq", "sngp", "dismax", "dismax+fractional", "softmax×3",
    ),
    "ablation": (
        "softmax", "softmax+fractional", "isomaxplus", "isomaxplus+cutmix", "dismax", "dismax+fractional",
    ),
}  # fmt: skip
"""Of each table where none are asked for; the ensemble last, when its members are there."""


def tiers_of(outside: Sequence[str]) -> Tiers:
    """As recipes list outside sets: the first is near, the last very far."""
    if len(outside) < 3:
        raise ConfigError("a table needs near, far and very far sets: give --near, --far and --very-far")
    return Tiers(near=(outside[0],), far=tuple(outside[1:-1]), very_far=(outside[-1],))


def tabulate(
    base: RunConfig, table: Table, tiers: Tiers, variants: Sequence[Variant], seeds: Sequence[int], runs: Path,
    output: Path, say: Say,
) -> PaperTable:  # fmt: skip
    """Train and measure what is missing, and write the table anew after every cell."""
    config = table_config(base, tiers)
    output.mkdir(parents=True, exist_ok=True)
    named = Tiers(**{name: tuple(map(short_name, specs)) for name, specs in tiers})  # nothing of this machine

    def tell(comparison: Comparison) -> None:
        found = PaperTable(table=table, tiers=named, comparison=comparison)
        atomic.write_text(output / f"{table}.json", found.model_dump_json(indent=1) + "\n")
        atomic.write_text(output / f"{table}.md", "\n".join(page(found)) + "\n")

    comparison, _ = train_twins(config, variants, seeds, runs, say, tell)
    return PaperTable(table=table, tiers=named, comparison=comparison)


def table_config(base: RunConfig, tiers: Tiers) -> RunConfig:
    """What all cells share: one split, so that ensembles may be made of the twins, and scores as the paper has them."""
    split_seed = 0 if base.split_seed is None else base.split_seed
    return base.model_copy(update={"outside": tiers.specs, "split_seed": split_seed, "score": "own"})
