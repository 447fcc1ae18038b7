"""`portcullis score`: many images into a sheet, with a progress bar; can be stopped and taken up again."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from portcullis.commands import connection
from portcullis.commands.extras import ray_packages, server_packages
from portcullis.commands.scoring.by_service import score_by_service
from portcullis.commands.scoring.images import Images, images_at, name_of
from portcullis.commands.scoring.rows import ScoreRow
from portcullis.commands.scoring.sheet import ScoreSheet
from portcullis.errors import PortcullisError

EXAMPLES = """examples:
  portcullis score photos/ --out scores.csv                        by the service on 127.0.0.1:8000
  portcullis score photos/ --out scores.csv                        again: only what has no row yet
  portcullis score photos/ --out scores.parquet --concurrency 32   Parquet needs the extra `parquet`
  portcullis score photos/ --out scores.csv --bundle models/pets/2       without a service, on all cores
  portcullis score s3://photos/2026 --out scores.parquet --bundle models/pets/2 --on ray --address auto

A broken file becomes a row with its error. Stop with Ctrl-C; the same command goes on where it stopped.
"""
Write = Callable[[ScoreRow], None]


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "score",
        help="score many images into a CSV or Parquet sheet",
        description="Score every image of a folder or below a URL: by a running service, or straight from a bundle on\n"
        "all cores of this machine or on a Ray cluster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="folder or URL (s3://, gs://, …), searched with all below it")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="sheet to write: .csv or .parquet")
    parser.add_argument("--bundle", type=Path, metavar="PATH", help="score with this bundle, without a service")
    parser.add_argument(
        "--on", choices=["cores", "ray"], help="where a bundle runs: cores of this machine (default), ray"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="Ray cluster; auto: the one this machine is in")
    parser.add_argument("--concurrency", type=int, default=8, metavar="N", help="requests at a time (default: 8)")
    connection.add_choice_flags(parser)
    connection.add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.bundle and (arguments.model or arguments.model_version or arguments.url):
        raise PortcullisError("--bundle is a model by itself: leave out --model, --model-version and --url")
    if arguments.on and not arguments.bundle:
        raise PortcullisError("--on says where a bundle runs: name it with --bundle")
    images = images_at(arguments.source)
    keys = images.find()
    with ScoreSheet(arguments.out) as sheet:
        left = [key for key in keys if name_of(key) not in sheet.done]
        counts: Counter[str] = Counter()
        with tqdm(total=len(keys), initial=len(keys) - len(left), unit="image", disable=None) as bar:

            def write(row: ScoreRow) -> None:
                sheet.append(row)
                counts[row.verdict or "broken"] += 1
                bar.update()

            if left:
                _score(arguments, sheet, images, left, write)
        sheet.finish()
    print(_summary(arguments.out, len(keys) - len(left), counts))
    return 0


def _score(arguments: argparse.Namespace, sheet: ScoreSheet, images: Images, keys: Sequence[str], write: Write) -> None:
    if arguments.bundle is None:
        asyncio.run(_by_service(arguments, sheet, images, keys, write))
    else:
        _by_bundle(arguments, sheet, images, keys, write)


async def _by_service(
    arguments: argparse.Namespace, sheet: ScoreSheet, images: Images, keys: Sequence[str], write: Write
) -> None:
    choice = connection.choice_of(arguments)
    async with connection.async_client_of(arguments) as client:
        models = [model for model in await client.models() if choice.get("model", "") in (model.name, "")]
        model = next((model for model in models if model.is_default or "model" in choice), None)
        if model is not None:  # an unknown name is refused by the first prediction, in the service's own words
            _check_same(sheet, model.name, choice.get("version", model.default_version))
        await score_by_service(client, images, keys, choice, arguments.concurrency, write)


def _by_bundle(
    arguments: argparse.Namespace, sheet: ScoreSheet, images: Images, keys: Sequence[str], write: Write
) -> None:
    with server_packages("--bundle"):
        from portcullis.bundle import gate
        from portcullis.bundle.files import load_bundle
        from portcullis.bundle.promises import choose
        from portcullis.commands.scoring.on_cores import score_on_cores
        from portcullis.commands.scoring.task import Task

    manifest = load_bundle(arguments.bundle).manifest
    _check_same(sheet, manifest.name, manifest.version)
    wanted = arguments.operating_point or gate.DEFAULT_OPERATING_POINT
    wanted = wanted if arguments.threshold is None else str(arguments.threshold)
    choose(wanted, manifest)  # refused here, not on every core
    task = Task(arguments.bundle.resolve(), wanted, images)
    if arguments.on == "ray":
        with ray_packages("--on ray"):
            from portcullis.commands.on_ray.scoring import score_on_ray
        rows = score_on_ray(task, keys, arguments.address)
    else:
        rows = score_on_cores(task, keys)
    for row in rows:
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
