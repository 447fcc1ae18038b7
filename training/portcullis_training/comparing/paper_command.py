"""The command that makes a table, written from what the table keeps of it."""

import shlex
from typing import Any

from portcullis_training.comparing.paper_table import VARIANTS, PaperTable
from portcullis_training.config import RunConfig
from portcullis_training.recipes import RECIPES

OF_THE_CELLS = {"method", "mixing", "members", "seed"}
OF_THE_TABLE = {"outside", "score", "split_seed"}
"""What every table sets by itself: outside sets by their tiers, each method's own score, one split."""


def command_of(found: PaperTable) -> list[str]:
    """Lines of a shell; files are named but not located, as everywhere in results."""
    config = found.comparison.config
    recipe = nearest_recipe(config)
    words = ["portcullis-train", "compare", "--recipe", recipe]
    for name, value in config:
        if name not in OF_THE_CELLS | OF_THE_TABLE and value != getattr(RECIPES[recipe], name):
            words += _flag(name, value)
    if config.split_seed not in (0, RECIPES[recipe].split_seed):
        words += _flag("split_seed", config.split_seed)
    table = ["--table", found.table, "--seeds", ",".join(map(str, found.comparison.seeds)), *_variants(found)]
    specs = iter(config.outside)
    for tier in ("near", "far", "very_far"):
        listed = [next(specs) for _ in getattr(found.tiers, tier)]
        table += [f"--{tier.replace('_', '-')}", " ".join(listed)]
    return [f"{shlex.join(words)} \\", f"    {shlex.join([*table, '--output', found.table])}"]


def nearest_recipe(config: RunConfig) -> str:
    """The recipe that differs in the fewest fields."""
    shared = [name for name in RunConfig.model_fields if name not in OF_THE_CELLS | OF_THE_TABLE]
    return min(RECIPES, key=lambda recipe: sum(getattr(RECIPES[recipe], n) != getattr(config, n) for n in shared))


def _variants(found: PaperTable) -> list[str]:
    """None where they are those of the table, or as many of them as there are already."""
    names = list(dict.fromkeys(twin.variant for twin in found.comparison.twins))
    known = VARIANTS[found.table]
    return [] if tuple(names) == known[: len(names)] else ["--variants", ",".join(names)]


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if name == "progressive_resizing" and value is not None:
        return [f"--{flag}", ",".join(f"{share}:{pixels}" for share, pixels in value)]
    if isinstance(value, tuple):
        return [f"--{flag}", ",".join(map(str, value))]
    return [f"--{flag}", "none" if value is None else str(value)]
