"""The commands and their flags, with help that teaches by example. It knows no command's work, only its words."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from portcullis_training.cli.flags import Parser, add_run_flags

DEFAULT_MODELS = Path("models")

EXAMPLES = """\
examples:
  portcullis-train recipes                                    what can be trained
  portcullis-train run --recipe photos --data folder:my-photos    your own photos, a class a folder, in minutes
  portcullis-train run --recipe digits                        the whole line, in under two minutes
  portcullis-train fit --recipe cifar10-whitened --data npz:train.npz,test.npz --epochs 10 --name short
  portcullis-train fit --resume runs/short                    go on after Ctrl-C or a crash
  portcullis-train calibrate runs/short                       each stage again, alone
  torchrun --nproc-per-node 4 -m portcullis_training fit --recipe cifar10-wrn-28-10
"""

RUN_EXAMPLES = """\
examples:
  portcullis-train {command} --recipe photos --data folder:my-photos --minutes 20
  portcullis-train {command} --recipe digits
  portcullis-train {command} --recipe digits --method softmax --name digits-softmax --seed 3
  portcullis-train {command} --recipe fashion-mnist --data idx:/data/fashion --outside "noise:uniform shuffled"
"""

CHECK_EXAMPLES = """\
examples:
  portcullis-train {command} folder:my-photos
  portcullis-train {command} folder:my-photos --output look --no-pictures
"""

CALIBRATE_EXAMPLES = """\
The temperature comes from validation images. So does the score: its parts (the method's own, norm x gap, Mahalanobis of
features and of a middle block, neighbours) are weighed by what tells validation images from strangers made of them.
Only then are the calibration images looked at, and set the gate. Which score, a run says when it is made:
  portcullis-train run --recipe digits                        the fitted score
  portcullis-train run --recipe digits --score own            the method's own score alone: MMLES of dismax
example:
  portcullis-train {command} runs/digits
"""

TRY_EXAMPLES = """\
example (nothing is written):
  portcullis-train {command} --recipe cifar10-wrn-28-10 --steps 3
"""

COMPARE_EXAMPLES = """\
examples (each resumes where it stopped when given again):
  portcullis-train compare --recipe cifar10-resnet9 --epochs 6 --seeds 0,1,2 --output docs/results/short
  portcullis-train compare --recipe cifar10-resnet9 --budgets 4,8,16 --seeds 0 \\
      --variants dismax,dismax+fractional --output docs/results/budgets
  portcullis-train compare --recipe cifar10-resnet9 --epochs 12 --table paper --near cifar100 --far tinyimagenet \\
      --very-far svhn --output docs/results/paper
"""

FIGURES_EXAMPLES = """\
example:
  portcullis-train {command} runs/softmax runs/isomaxplus runs/dismax --output docs/results/figures
"""

PAGE_EXAMPLES = """\
Nothing is trained: the figures are those of the file, so that a page can be written anew with newer words or plots.
example:
  portcullis-train {command} docs/results/paper/paper.json
"""

ABLATE_EXAMPLES = """\
example (twins that differ in their method, both calibrated):
  portcullis-train {command} runs/digits runs/digits-softmax --output docs/results/ablation
"""

PACK_EXAMPLES = """\
examples:
  portcullis-train {command} cifar10 data/cifar10_train.npz
  portcullis-train {command} cifar10 data/cifar10_test.npz --part test
  portcullis-train {command} folder:photos data/photos.npz --image-size 64
then: --data npz:data/cifar10_train.npz,data/cifar10_test.npz
"""

ANSWERS_EXAMPLES = """\
The page stays in the run's directory: mistakes, strange photos, doubtful labels, the classes that need more photos.
examples:
  portcullis-train {command} runs/my-photos
  portcullis-train {command} runs/my-photos --no-pictures
"""

ONE_RUN_EXAMPLE = "example:\n  portcullis-train {command} runs/digits\n"

Commands = Mapping[str, Callable[[argparse.Namespace], None]]


def build(functions: Commands) -> Parser:
    """The parser of the whole command line; each command sets `command` to its function."""
    parser = Parser(prog="portcullis-train", description="From images to a verified bundle.", epilog=EXAMPLES)
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)

    def add(name: str, text: str, epilog: str = ONE_RUN_EXAMPLE) -> Parser:
        command = commands.add_parser(name, help=text, description=text, epilog=epilog.format(command=name))
        command.set_defaults(command=functions[name], parser=command)
        return command

    run = add("run", "fit, calibrate, evaluate and export in one go", RUN_EXAMPLES)
    add_run_flags(run)
    _add_models(run)
    _add_cost(run)
    _add_pictures(run)
    _add_check_data(add("check-data", "look at a folder of photos before anything is trained on it", CHECK_EXAMPLES))
    attempt = add(
        "try",
        "a few steps of a run and all that follows them, to see that it works and how long it would take",
        TRY_EXAMPLES,
    )
    add_run_flags(attempt)
    attempt.add_argument("--steps", type=_count, default=3, metavar="N", help="how many (default: %(default)s)")
    fit = add("fit", "train a classifier", RUN_EXAMPLES + "  portcullis-train fit --resume runs/digits\n")
    add_run_flags(fit)
    fit.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this directory")
    _add_run(add("calibrate", "fit the temperature, the score and the gate of a trained run", CALIBRATE_EXAMPLES))
    evaluate = _add_run(
        add("evaluate", "measure a run, or its bundle as served, on test and out-of-distribution (OOD) images")
    )
    evaluate.add_argument("--bundle", type=Path, metavar="DIR", help="measure this bundle as the service serves it")
    _add_outside(evaluate)
    _add_cost(evaluate)
    export = _add_run(add("export", "write the bundle of an evaluated run, and prove that it can be served"))
    _add_models(export)
    export.add_argument("--name", metavar="NAME", help="of the bundle (default: that of the run)")
    answers = _add_run(
        add(
            "answers",
            "show how a calibrated run answers, photo by photo, and what to photograph next",
            ANSWERS_EXAMPLES,
        )
    )
    _add_pictures(answers)
    _add_ablate(add("ablate", "tabulate what every part of the score of calibrated runs is worth", ABLATE_EXAMPLES))
    _add_compare(add("compare", "train twins that differ in their method alone, and tabulate them", COMPARE_EXAMPLES))
    page = add("page", "write the page and plots of a table again from its figures", PAGE_EXAMPLES)
    page.add_argument("figures", type=Path, metavar="FILE", help="paper.json or ablation.json, as compare wrote it")
    _add_figures(add("figures", "draw loss landscapes, mean logits and a compound image of runs", FIGURES_EXAMPLES))
    _add_pack(add("pack", "write the images of a data spec as one npz file", PACK_EXAMPLES))
    recipes = add("recipes", "list the recipes, or show one", "example:\n  portcullis-train {command} digits\n")
    recipes.add_argument("name", nargs="?", help="show every field of this recipe")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def _add_run(command: Parser) -> Parser:
    command.add_argument("run", type=Path, metavar="RUN", help="directory of the run, such as runs/digits")
    return command


def _add_models(command: Parser) -> None:
    command.add_argument("--models", type=Path, default=DEFAULT_MODELS, metavar="DIR", help="where bundles are written")
    command.add_argument(
        "--examples",
        type=Path,
        metavar="DIR",
        help="pictures, or a folder a kind, to ship in the bundle for the console",
    )


def _add_figures(command: Parser) -> None:
    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="calibrated runs, to stand side by side")
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the figures go")
    command.add_argument(
        "--places",
        type=_count,
        default=21,
        metavar="N",
        help="of the landscape, along each side: N x N losses of 500 training images a run (default: %(default)s)",
    )


def _add_outside(command: Parser) -> None:
    command.add_argument(
        "--outside",
        metavar="SPECS",
        help="out-of-distribution (OOD) sets by blanks, from now on in the place of those in its config",
    )


def _add_ablate(command: Parser) -> None:
    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of calibrated runs")
    _add_outside(command)
    command.add_argument(
        "--knn",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure KNN over all training images too, which takes a pass over them",
    )
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="where figures, page and plot go")


def _add_pack(command: Parser) -> None:
    command.add_argument(
        "spec", metavar="SPEC", help="a data spec: cifar10, folder:PATH, idx:PATH … (docs/training.md)"
    )
    command.add_argument("output", type=Path, metavar="FILE.npz", help="file to write")
    command.add_argument(
        "--part", choices=("train", "test"), default="train", help="which images (default: %(default)s)"
    )
    size = "bring images to N×N pixels (default: as they are; a folder: 224)"
    command.add_argument("--image-size", type=_count, metavar="N", help=size)
    command.add_argument(
        "--interpolation",
        choices=("nearest", "bilinear", "bicubic", "lanczos"),
        default="bilinear",
        help="by which they are brought to it, antialiased but for nearest (default: %(default)s, as the service's)",
    )


def _add_check_data(command: Parser) -> None:
    command.add_argument("data", metavar="folder:PATH", help="the photos, a class a sub-folder")
    command.add_argument("--recipe", default="photos", metavar="NAME", help="splits and sizes (default: %(default)s)")
    command.add_argument("--output", type=Path, default=Path("data-check"), metavar="DIR", help="where the page goes")
    _add_pictures(command)


def _add_pictures(command: Parser) -> None:
    command.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show photos on contact sheets; --no-pictures for photos that are nobody's business",
    )


def _add_cost(command: Parser) -> None:
    command.add_argument(
        "--cost",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time the exported graph beside its SoftMax twin, for at most half a minute of one core",
    )


def _add_compare(command: Parser) -> None:
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
