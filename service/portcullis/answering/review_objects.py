"""The bytes of kept images in an object store, which all instances of a fleet reach; items are in the database."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from portcullis.bundle.sources.tree import age_seconds, open_tree
from portcullis.errors import ReviewFailure, UnknownReviewItem
from portcullis.store.database import Session
from portcullis.store.review_images import ORPHAN_SECONDS, Images, id_of

logger = logging.getLogger(__name__)


class ImageObjects(Images):
    """Below one URL. An object is written before its row and removed after it, so a row never points at nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()

    @functools.cached_property
    def _opened(self) -> tuple[Any, str]:
        return open_tree(self._url)

    def _place(self, name: str) -> tuple[Any, str]:
        with self._lock:  # readers and the writer are threads of their own
            files, root = self._opened
        return files, f"{root}/{name}"

    def prepare(self) -> None:
        """See that there is a way to it; a bucket is made by whoever pays for it."""
        self._place("")

    def write(self, session: Session, name: str, payload: bytes) -> None:
        files, path = self._place(name)
        files.pipe_file(path, payload)

    def read(self, session: Session, name: str) -> bytes:
        files, path = self._place(name)
        try:
            payload: bytes = files.cat_file(path)
        except FileNotFoundError:
            raise UnknownReviewItem(f"item {id_of(name)} has just been removed") from None
        except Exception as error:  # each store has errors of its own, whose words are for the log
            logger.error("cannot read an image of the review queue: %s: %s", type(error).__name__, error)
            raise ReviewFailure("the images of the review queue cannot be reached") from error
        return payload

    def remove(self, names: Iterable[str]) -> None:
        """What cannot be removed now is swept away at a later start."""
        for name in names:
            files, path = self._place(name)
            with contextlib.suppress(Exception):
                files.rm_file(path)

    def sweep(self, is_known: Callable[[set[str]], set[str]]) -> None:
        """Young objects may belong to a row that is being written."""
        files, root = self._place("")
        now = time.time()
        found = files.find(root.rstrip("/"), detail=True)
        old = [path.rpartition("/")[2] for path, info in found.items() if age_seconds(info, now) > ORPHAN_SECONDS]
        known = is_known({id_of(name) for name in old})
        self.remove(name for name in old if id_of(name) not in known)
