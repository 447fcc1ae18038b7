"""`compare`: twins that differ in their method alone, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portcullis_training.commands.flags import add_run_flags
from portcullis_training.commands.overrides import completed, config_of
from portcullis_training.commands.parser import Say, add
from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError

if TYPE_CHECKING:
    from portcullis_training.comparing.paper_table import Tiers

COMPARED = ("softmax", "isomaxplus", "dismax", "dismax+fractional")
"""Twins that are compared where none are asked for."""

EXAMPLES = """\
examples (each resumes where it stopped when given again):
  portcullis-train compare --recipe cifar10-resnet9 --epochs 6 --seeds 0,1,2 --output docs/results/short
  portcullis-train compare --recipe cifar10-resnet9 --budgets 4,8,16 --seeds 0 \\
      --variants dismax,dismax+fractional --output docs/results/budgets
  portcullis-train compare --recipe cifar10-resnet9 --epochs 12 --table paper --near cifar100 --far tinyimagenet \\
      --very-far svhn --output docs/results/paper
"""


def add_command(commands: Any) -> None:
    text = "train twins that differ in their method alone, and tabulate them"
    command = add(commands, "compare", _compare, text, EXAMPLES)
    add_run_flags(command)
    command.add_argument(
        "--variants",
        metavar="LIST",
        help="by commas, each method[+fractional|+cutmix][×M] (default: softmax,isomaxplus,dismax,dismax+fractional; "
        "with --table all that the paper has)",
    )
    command.add_argument(
        "--table",
        choices=("paper", "ablation"),
        help="the paper's table, or its ablation by score, on this data; the same command given several times at once "
        "shares the cells",
    )
    for tier in ("near", "far", "very-far"):
        command.add_argument(
            f"--{tier}",
            metavar="SPECS",
            help=f"of a table: the {tier.replace('-', ' ')} out-of-distribution sets, by spaces "
            "(default: of --outside the first is near, the last very far)",
        )
    command.add_argument(
        "--cells",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="of a table: paper.json or ablation.json of the same config from another machine, or of a run that was "
        "cut short; cells that are in there are not trained again",
    )
    command.add_argument("--seeds", default="0,1,2", metavar="LIST", help="seeds by commas (default: %(default)s)")
    command.add_argument(
        "--budgets",
        metavar="LIST",
        help="compare at each of these numbers of epochs, in place of --epochs, to see where a method overtakes",
    )
    command.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="where the figures (JSON), their page and plots go"
    )


def _compare(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.comparing import budgets, compare, paper, paper_table
    from portcullis_training.comparing import report as comparison_report

    _refuse_what_has_no_say(namespace)
    config, output = completed(config_of(namespace)), namespace.output
    listed = namespace.variants or ",".join(paper_table.VARIANTS.get(namespace.table, COMPARED))
    variants = [compare.parse_variant(name) for name in listed.split(",")]
    seeds = compare.parse_numbers(namespace.seeds, "seeds", "0,1,2")
    try:
        if namespace.table is not None:
            tiers, elsewhere = _tiers(namespace, config), namespace.cells
            paper.tabulate(config, namespace.table, tiers, variants, seeds, namespace.runs, output, say, elsewhere)
        elif namespace.budgets is None:
            compare.compare(config, variants, seeds, namespace.runs, output, say)
        else:
            epochs = compare.parse_numbers(namespace.budgets, "numbers of epochs", "4,8,16")
            budgets.compare_budgets(config, epochs, variants, seeds, namespace.runs, output, say)
    except KeyboardInterrupt:  # in the middle of a fit, or of what is measured after it
        raise KeyboardInterrupt("what is done is kept; go on with the same command") from None
    written = comparison_report.PAGE_FILE if namespace.budgets is None else budgets.PAGE_FILE
    written = written if namespace.table is None else f"{namespace.table}.md"
    say(f"written: {output / written}")


def _refuse_what_has_no_say(namespace: argparse.Namespace) -> None:
    """A flag that would be passed over in silence, at the cost of hours."""
    for field, instead in (("method", "variants"), ("mixing", "variants"), ("members", "variants"), ("seed", "seeds")):
        if getattr(namespace, f"field_{field}") is not None:
            raise ConfigError(f"--{field} has no say in a comparison, whose twins differ in it; give --{instead}")
    if namespace.overwrite:
        raise ConfigError("--overwrite has no say in a comparison, which goes on with its runs; give another --name")
    if namespace.table is None:
        for name in ("near", "far", "very_far", "cells"):
            if getattr(namespace, name):
                raise ConfigError(f"--{name.replace('_', '-')} goes with --table")
    elif namespace.budgets is not None:
        raise ConfigError("--budgets and --table are two kinds of comparison; give one of them")


def _tiers(namespace: argparse.Namespace, config: RunConfig) -> Tiers:
    """Near, far and very far sets as they were given, or those of the config."""
    from portcullis_training.comparing.paper import tiers_of
    from portcullis_training.comparing.paper_table import Tiers

    given = {name: getattr(namespace, name) for name in ("near", "far", "very_far")}
    if not any(given.values()):
        return tiers_of(config.outside)
    return Tiers(**{name: tuple((specs or "").split()) for name, specs in given.items()})
