"""The paper's tables on any data: which variants, against which outside sets, trained cell by cell."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from portcullis_training.comparing.compare import Comparison, Say, Twin, Variant, train_twins
from portcullis_training.comparing.paper_page import page
from portcullis_training.comparing.paper_plots import plots_of
from portcullis_training.comparing.paper_table import PaperTable, Table, Tiers
from portcullis_training.config import RunConfig
from portcullis_training.data.outside import short_name
from portcullis_training.errors import ConfigError
from portcullis_training.exporting.provenance import portable_config
from portcullis_training.runs import atomic


def tiers_of(outside: Sequence[str]) -> Tiers:
    """As recipes list outside sets: the first is near, the last very far."""
    if len(outside) < 3:
        raise ConfigError("a table needs near, far and very far sets: give --near, --far and --very-far")
    return Tiers(near=(outside[0],), far=tuple(outside[1:-1]), very_far=(outside[-1],))


def tabulate(
    base: RunConfig, table: Table, tiers: Tiers, variants: Sequence[Variant], seeds: Sequence[int], runs: Path,
    output: Path, say: Say, elsewhere: Sequence[Path] = (),
) -> PaperTable:  # fmt: skip
    """Train and measure what is missing, and write the table anew after every cell.

    `elsewhere`: files of the same table from other machines, whose cells are not trained again.
    """
    config = table_config(base, tiers)
    known = [twin for path in elsewhere for twin in _asked_for(path, _cells_of(path, config), variants, seeds, say)]
    output.mkdir(parents=True, exist_ok=True)
    named = Tiers(**{name: tuple(map(short_name, specs)) for name, specs in tiers})  # nothing of this machine

    def tell(comparison: Comparison) -> None:
        found = PaperTable(table=table, tiers=named, comparison=comparison)
        atomic.write_text(output / f"{table}.json", found.model_dump_json(indent=1) + "\n")
        write_page(found, output)

    comparison, _ = train_twins(config, variants, seeds, runs, say, tell, known)
    tell(comparison)  # once more: all cells may have been known
    return PaperTable(table=table, tiers=named, comparison=comparison)


def _cells_of(path: Path, config: RunConfig) -> tuple[Twin, ...]:
    """The cells of a table that was made with the same config elsewhere; of any other none may stand beside ours."""
    comparison, ours = read_table(path).comparison, portable_config(config)
    differing = [name for name in RunConfig.model_fields if getattr(comparison.config, name) != getattr(ours, name)]
    if differing:
        raise ConfigError(
            f"{path} was made with another config: {differing[0]} is {getattr(comparison.config, differing[0])} there "
            f"and {getattr(ours, differing[0])} here"
        )
    return comparison.twins


def _asked_for(
    path: Path, cells: Sequence[Twin], variants: Sequence[Variant], seeds: Sequence[int], say: Say
) -> list[Twin]:
    """Those of the table; which others there are is said, for they were trained to be in one."""
    asked = {(variant.name, seed) for variant in variants for seed in seeds}
    others = [f"{twin.title}, seed {twin.seed}" for twin in cells if (twin.variant, twin.seed) not in asked]
    if others:
        say(f"{path}: left out, as --variants and --seeds do not ask for them: {'; '.join(others)}")
    return [twin for twin in cells if (twin.variant, twin.seed) in asked]


def table_config(base: RunConfig, tiers: Tiers) -> RunConfig:
    """What all cells share: one split, so that ensembles may be made of the twins, and scores as the paper has them."""
    split_seed = 0 if base.split_seed is None else base.split_seed
    return base.model_copy(update={"outside": tiers.specs, "split_seed": split_seed, "score": "own"})


def read_table(path: Path) -> PaperTable:
    """What a paper.json or ablation.json holds."""
    try:
        return PaperTable.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"expected the figures of a table, such as paper.json, found no file {path}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path} does not hold the figures of a table: {where}: {first['msg']}") from None


def write_page(found: PaperTable, output: Path) -> Path:
    """The page and its plots; nothing but the figures decides what they show, so that they can be made again."""
    (output / "plots").mkdir(parents=True, exist_ok=True)
    for name, content in plots_of(found).items():
        (output / name).write_bytes(content)
    written = output / f"{found.table}.md"
    atomic.write_text(written, "\n".join(page(found)) + "\n")
    return written
