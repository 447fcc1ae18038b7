"""Writes labelled items of the review queue as a folder that the training line reads: `folder:DIR`."""

import mimetypes
from pathlib import Path

from portcullis.client.calls import Filter
from portcullis.client.sync_client import Client
from portcullis.schemas.review import ReviewItem

_EXTENSIONS = {"image/jpeg": ".jpg", "image/tiff": ".tif", "image/webp": ".webp"}


def export_review(client: Client, directory: Path, model: str | None = None) -> dict[str, int]:
    """Write DIR/<label>/<id>.<ext> for every labelled item; gives how many images each label has now.

    What is there already is not fetched again; an item whose label was changed moves.
    """
    counts: dict[str, int] = {}
    chosen: Filter = {"state": "labelled"} if model is None else {"state": "labelled", "model": model}
    for item in client.review_items(**chosen):
        assert item.true_label is not None
        _export_one(client, directory, item, item.true_label)
        counts[item.true_label] = counts.get(item.true_label, 0) + 1
    return counts


def _export_one(client: Client, directory: Path, item: ReviewItem, label: str) -> None:
    extension = _EXTENSIONS.get(item.media_type) or mimetypes.guess_extension(item.media_type) or ".png"
    target = directory / label / f"{item.id}{extension}"
    for earlier in directory.glob(f"*/{item.id}.*"):
        if earlier != target:
            earlier.unlink()
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    draft.write_bytes(client.review_image(item.id))
    draft.replace(target)
