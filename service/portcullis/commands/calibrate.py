"""`portcullis calibrate`: the next version of a bundle, its gate calibrated on images of one's own. Needs no torch."""

import argparse
import hashlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from portcullis.commands.extras import server_packages
from portcullis.commands.scoring.rows import find_images
from portcullis.errors import BadImage, ImageTooLarge, PortcullisError

if TYPE_CHECKING:
    from portcullis.bundle.engine import Engine
    from portcullis.bundle.files import Bundle
    from portcullis.bundle.manifest import Manifest
    from portcullis.bundle.recalibration import Answers

BATCH_IMAGES = 32
REPORT = "report.md"
EXAMPLES = """examples:
  portcullis calibrate models/cifar10-whitened/2 --images familiar/            any folder of familiar images
  portcullis calibrate models/cifar10-whitened/2 --images sorted/ --labels     a sub-folder for each label
  portcullis review export labelled/                                           such a folder from the review queue

The graph stays as it is; thresholds, class mix, figures and provenance are those of the images given. They must be
familiar images as they come in practice, none picked: the review queue keeps every rejected image and few accepted
ones, so from it take a queue that samples both alike. Labels add the promises to be right (right99) and prediction
sets; without them there are operating points, by class too.
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
    parser.add_argument("--images", type=Path, required=True, metavar="FOLDER", help="familiar images, with all below")
    parser.add_argument("--labels", action="store_true", help="each sub-folder is named after the label of its images")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with server_packages("calibrate"):
        from portcullis.bundle import devices
        from portcullis.bundle import files as bundles
        from portcullis.bundle.engine import Engine, start
        from portcullis.bundle.files import MODEL_FILE, load_bundle, write_bundle
        from portcullis.bundle.providers import EngineOptions
        from portcullis.bundle.recalibration import recalibrate

    bundle = load_bundle(arguments.bundle)
    files = _labelled(arguments.images, bundle.manifest.labels) if arguments.labels else _unlabelled(arguments.images)
    answers = _answers(bundle, start(bundle, EngineOptions(threads=devices.num_cores())), files, arguments.images.name)
    models = arguments.bundle.resolve().parent.parent
    version = max(bundles.versions(models, bundle.manifest.name), default=bundle.manifest.version) + 1
    manifest = recalibrate(bundle.manifest, answers, version)
    kept = {name: bundle.read(name) for name in bundle.manifest.files}
    if REPORT in kept:
        kept[f"report-of-{bundle.manifest.version}.md"] = kept.pop(REPORT)
    kept[REPORT] = "\n".join([*_report(bundle.manifest, manifest), ""]).encode()
    assert MODEL_FILE in kept
    written = write_bundle(models, manifest, kept, check=lambda draft: Engine(draft).self_test())
    print(f"{written.label} is written, calibrated on {answers.num_images} images")
    print("\n".join(f"  {line}" for line in _promises(written.manifest)))
    return 0


def _unlabelled(folder: Path) -> list[tuple[Path, int | None]]:
    return [(file, None) for file in find_images(folder)]


def _labelled(folder: Path, labels: tuple[str, ...]) -> list[tuple[Path, int | None]]:
    """Files with the class of the sub-folder that they lie in; those of other names are left out, and named."""
    index = {label: number for number, label in enumerate(labels)}
    found: list[tuple[Path, int | None]] = []
    left_out: Counter[str] = Counter()
    for file in find_images(folder):
        label = file.relative_to(folder).parts[0]
        if label in index:
            found.append((file, index[label]))
        else:
            left_out[label] += 1
    for label, count in sorted(left_out.items()):
        print(f"left out: {count} images of {label!r}, which is none of the bundle's labels")
    if not found:
        raise PortcullisError(f"expected sub-folders named after the labels ({', '.join(labels[:10])}, …) with images")
    return found


def _answers(bundle: "Bundle", engine: "Engine", files: list[tuple[Path, int | None]], source: str) -> "Answers":
    """What the engine says of every image that decodes; a broken one is named and left out."""
    import numpy as np

    from portcullis.bundle.engine import Outputs
    from portcullis.bundle.preprocess import decode
    from portcullis.bundle.recalibration import Answers

    digest, outputs, labels = hashlib.sha256(), [], []
    with tqdm(total=len(files), unit="image", disable=None) as bar:
        for start in range(0, len(files), BATCH_IMAGES):
            images = []
            for file, label in files[start : start + BATCH_IMAGES]:
                content = file.read_bytes()
                try:
                    images.append(decode(content, bundle.manifest.image))
                except (BadImage, ImageTooLarge) as error:
                    print(f"left out: {file.name}: {error}")
                    continue
                digest.update(hashlib.sha256(content).digest())
                labels.append(label)
            if images:
                outputs.append(engine.run(np.stack(images)))
            bar.update(min(BATCH_IMAGES, len(files) - start))
    if not outputs:
        raise PortcullisError("expected a folder with familiar images, found none that decodes")
    together = Outputs(
        *(np.concatenate([getattr(one, name) for one in outputs]) for name in ("probabilities", "scores", "parts"))
    )
    known = None if None in labels else np.array(labels, np.int64)
    return Answers(together, known, digest.hexdigest(), source)


def _promises(manifest: "Manifest") -> list[str]:
    """What the images can promise, and what they cannot."""
    from portcullis.bundle.gate import PUBLISHED
    from portcullis.bundle.grammar import BY_CLASS
    from portcullis.bundle.promises import Promises
    from portcullis.bundle.right import PUBLISHED as RIGHT
    from portcullis.errors import UnknownOperatingPoint

    promises, lines = Promises(manifest), []
    for text in (*PUBLISHED, *(f"{name}:{BY_CLASS}" for name in PUBLISHED), *RIGHT, *(f"accept95+{n}" for n in RIGHT)):
        try:
            chosen = promises.gate(text)
        except UnknownOperatingPoint as error:
            lines.append(str(error).partition("; published:")[0])
            continue
        if chosen.right is None:
            lines.append(f"{text}: rejects at most {100 * chosen.rejected_share:.3g} % of familiar images")
        else:
            lines.append(
                f"{text}: of familiar images that pass, at most {100 * chosen.right.risk:.3g} % are answered wrongly "
                f"(95 % confidence); {100 * chosen.right.coverage:.3g} % pass"
            )
    return lines


def _report(before: "Manifest", manifest: "Manifest") -> list[str]:
    figures, num_images = manifest.figures, manifest.calibration.num_images
    rows = [
        f"| {point.name} | {point.threshold:.4f} | ≤ {point.alpha:.1%} | ≤ {point.rejected_share_bound:.2%} |"
        for point in manifest.operating_points
    ]
    return [
        f"# {manifest.name}, version {manifest.version}",
        "",
        f"The graph of version {before.version}, its gate calibrated anew on {num_images} familiar images. "
        f"What is known of the graph itself is in report-of-{before.version}.md.",
        "",
        "| operating point | threshold | familiar images rejected, mean | with 95 % confidence |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        *(f"- {line}" for line in _promises(manifest)),
        "",
        "All of this holds for familiar (in-distribution) images only.",
        "",
        f"Accuracy {figures.accuracy:.2%}, ECE {figures.ece:.4f} on {figures.num_images} images. "
        f"Data: {manifest.provenance.data}.",
    ]
