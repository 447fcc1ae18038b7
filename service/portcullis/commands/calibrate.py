"""`portcullis calibrate`: the next version of a bundle, its gate calibrated on images of one's own. Needs no torch."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from portcullis.client import Client
from portcullis.commands import connection
from portcullis.commands.extras import server_packages
from portcullis.commands.scoring.images import find_images
from portcullis.errors import PortcullisError

if TYPE_CHECKING:
    from portcullis.bundle.familiar import Picture, Run
    from portcullis.bundle.manifest import Manifest

EXAMPLES = """examples:
  portcullis calibrate models/pets/2 --images familiar/            any folder of familiar images
  portcullis calibrate models/pets/2 --images sorted/ --labels     a sub-folder for each label
  portcullis calibrate models/pets/2 --review                      the labelled part of a review queue

The graph stays as it is; thresholds, class mix, figures and provenance are those of the images given. They must be
familiar images as they come in practice, none picked. A review queue keeps every rejected image, but few accepted ones:
of it count only those that were drawn by chance, whatever their verdict (review_accept_sample). Label all of these.
Labels add the promises to be right (right99) and prediction sets; without them there are operating points, by class
too.
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="calibrate the gate of a bundle on your own images, as its next version",
        description="Write the next version of a bundle, its gate calibrated on familiar images of your own.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="models/<name>/<version>")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--images", type=Path, metavar="FOLDER", help="familiar images, with all below")
    source.add_argument(
        "--review", action="store_true", help="labelled images of a running service's review queue (admin key)"
    )
    parser.add_argument("--labels", action="store_true", help="each sub-folder is named after the label of its images")
    connection.add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with server_packages("calibrate"):
        from portcullis.bundle import devices
        from portcullis.bundle.engine import Engine, start
        from portcullis.bundle.familiar import read_pictures
        from portcullis.bundle.files import load_bundle
        from portcullis.bundle.next_version import FAMILIAR_ONLY, check_place, next_manifest, promises_of, write_next
        from portcullis.bundle.providers import EngineOptions

    bundle = load_bundle(arguments.bundle)
    check_place(bundle)
    with _pictures(arguments, bundle.manifest) as (pictures, source):
        engine = start(bundle, EngineOptions(threads=devices.num_cores()))
        with tqdm(total=len(pictures), unit="image", disable=None) as bar:
            familiar = read_pictures(bundle.manifest, _showing(engine.run, bar), pictures, source)
    for reason, count in sorted(familiar.left_out.items()):
        print(f"left out: {count} × {reason}")
    manifest = next_manifest(bundle, familiar.answers)
    written = write_next(bundle, manifest, check=lambda draft: Engine(draft).self_test())
    print(f"{written.label} is written, calibrated on {familiar.answers.num_images} images")
    print("\n".join(f"  {text}" for text in (*(one.text for one in promises_of(written.manifest)), FAMILIAR_ONLY)))
    return 0


def _showing(run: "Run", bar: Any) -> "Run":
    """The same under a progress bar."""

    def run_and_show(images: Any) -> Any:
        outputs = run(images)
        bar.update(len(images))
        return outputs

    return run_and_show


@contextmanager
def _pictures(arguments: argparse.Namespace, manifest: "Manifest") -> Iterator[tuple[list["Picture"], str]]:
    """Those that are asked for, and where they come from; a queue can be read within the block."""
    if not arguments.review:
        folder: Path = arguments.images
        yield _of_folder(folder, arguments.labels, manifest), folder.resolve().name  # which `.` has too
        return
    if arguments.labels:
        raise PortcullisError("--labels goes with --images: images of a review queue bring theirs")
    with connection.client_of(arguments) as client:
        yield _of_review(client, manifest.name), f"the review queue of {manifest.name}"


def _of_folder(folder: Path, has_labels: bool, manifest: "Manifest") -> list["Picture"]:
    from portcullis.bundle.familiar import Picture

    if not has_labels:
        return [Picture(file.name, file.read_bytes) for file in find_images(folder)]
    found = [Picture(file.name, file.read_bytes, _label_of(file.relative_to(folder))) for file in find_images(folder)]
    if not any(picture.label in manifest.labels for picture in found):
        examples = ", ".join(manifest.labels[:10]) + (", …" if len(manifest.labels) > 10 else "")
        raise PortcullisError(f"expected sub-folders named after the labels ({examples}) with images")
    return found


def _label_of(path: Path) -> str:
    """The first folder of a path below the one that was named."""
    return path.parts[0] if len(path.parts) > 1 else "(in no sub-folder)"


def _of_review(client: Client, name: str) -> list["Picture"]:
    """Labelled items that were drawn by chance; says how many were not, and how many wait for a label still."""
    from portcullis.bundle.familiar import Picture

    labelled = list(client.review_items(model=name, state="labelled"))
    drawn = [item for item in labelled if item.is_sampled]
    num_open = sum(item.is_sampled for item in client.review_items(model=name, state="open"))
    if len(drawn) < len(labelled):
        print(f"left out: {len(labelled) - len(drawn)} × kept for being rejected, not drawn by chance")
    if num_open:
        print(f"{num_open} images that were drawn are not labelled yet: what is promised holds if none was picked")
    return [Picture(item.id, partial(client.review_image, item.id), item.true_label) for item in drawn]
