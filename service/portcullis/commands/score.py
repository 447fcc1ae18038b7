"""`portcullis score`: a whole folder into a sheet, with a progress bar; can be stopped and taken up again."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from portcullis.commands import connection
from portcullis.commands.extras import server_packages
from portcullis.commands.scoring.rows import (
    BundleScorer,
    ScoreRow,
    find_images,
    name_in,
    score_by_service,
)
from portcullis.commands.scoring.sheet import ScoreSheet
from portcullis.errors import PortcullisError

EXAMPLES = """examples:
  portcullis score photos/ --out scores.csv                        by the service on 127.0.0.1:8000
  portcullis score photos/ --out scores.csv                        again: only what has no row yet
  portcullis score photos/ --out scores.parquet --concurrency 32   Parquet needs the extra `parquet`
  portcullis score photos/ --out scores.csv --bundle models/pets/1       without a service

A broken file becomes a row with its error. Stop with Ctrl-C; the same command goes on where it stopped.
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "score",
        help="score a folder of images into a CSV or Parquet sheet",
        description="Score every image below a folder, by a running service or straight from a bundle.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of images, searched with all below it")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="sheet to write: .csv or .parquet")
    parser.add_argument("--bundle", type=Path, metavar="PATH", help="score with this bundle, without a service")
    parser.add_argument("--concurrency", type=int, default=8, metavar="N", help="requests at a time (default: 8)")
    connection.add_choice_flags(parser)
    connection.add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.bundle and (arguments.model or arguments.model_version or arguments.url):
        raise PortcullisError("--bundle is a model by itself: leave out --model, --model-version and --url")
    folder: Path = arguments.folder
    files = find_images(folder)
    with ScoreSheet(arguments.out) as sheet:
        left = [file for file in files if name_in(folder, file) not in sheet.done]
        counts: Counter[str] = Counter()
        with tqdm(total=len(files), initial=len(files) - len(left), unit="image", disable=None) as bar:

            def write(row: ScoreRow) -> None:
                sheet.append(row)
                counts[row.verdict or "broken"] += 1
                bar.update()

            if left:
                _score(arguments, sheet, left, write)
        sheet.finish()
    print(_summary(arguments.out, len(files) - len(left), counts))
    return 0


def _score(
    arguments: argparse.Namespace, sheet: ScoreSheet, files: list[Path], write: Callable[[ScoreRow], None]
) -> None:
    if arguments.bundle is None:
        asyncio.run(_by_service(arguments, sheet, files, write))
    else:
        _by_bundle(arguments, sheet, files, write)


async def _by_service(
    arguments: argparse.Namespace, sheet: ScoreSheet, files: list[Path], write: Callable[[ScoreRow], None]
) -> None:
    choice = connection.choice_of(arguments)
    async with connection.async_client_of(arguments) as client:
        models = [model for model in await client.models() if choice.get("model", "") in (model.name, "")]
        model = next((model for model in models if model.is_default or "model" in choice), None)
        if model is not None:  # an unknown name is refused by the first prediction, in the service's own words
            _check_same(sheet, model.name, choice.get("version", model.default_version))
        await score_by_service(client, arguments.folder, files, choice, arguments.concurrency, write)


def _by_bundle(
    arguments: argparse.Namespace, sheet: ScoreSheet, files: list[Path], write: Callable[[ScoreRow], None]
) -> None:
    with server_packages("--bundle"):
        from portcullis.bundle import devices, gate
        from portcullis.bundle.engine import start
        from portcullis.bundle.files import load_bundle
        from portcullis.bundle.promises import choose
        from portcullis.bundle.providers import EngineOptions

    bundle = load_bundle(arguments.bundle)
    _check_same(sheet, bundle.manifest.name, bundle.manifest.version)
    threads = devices.num_cores()
    engine = start(bundle, EngineOptions(threads=threads))
    wanted = arguments.operating_point or gate.DEFAULT_OPERATING_POINT
    chosen = choose(wanted if arguments.threshold is None else str(arguments.threshold), bundle.manifest)
    for row in BundleScorer(bundle, engine, chosen).score(arguments.folder, files, threads):
        write(row)


def _check_same(sheet: ScoreSheet, name: str, version: int) -> None:
    """Scores of two models in one sheet could not be compared."""
    others = sheet.scored_by - {(name, str(version))}
    if others:
        found = ", ".join("/".join(other) for other in sorted(others))
        raise PortcullisError(f"the sheet holds rows of {found}, not {name}/{version}; choose another --out")


def _summary(out: Path, num_before: int, counts: "Counter[str]") -> str:
    before = f", {num_before} had their row already" if num_before else ""
    return (
        f"{out}: {counts.total()} images scored: {counts['accept']} accepted, {counts['reject']} rejected, "
        f"{counts['broken']} broken{before}"
    )
