"""The synchronous client."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, Unpack

import httpx

from portcullis.client import calls
from portcullis.client.calls import (
    Call,
    Choice,
    Filter,
    Image,
)
from portcullis.client.configuration import DEFAULT_URL, Configuration, Options
from portcullis.client.failures import ClientError
from portcullis.client.retries import (
    NO_RETRIES,
    Conversation,
    Outcome,
    Pause,
    converse,
)
from portcullis.schemas.answers import (
    Answer,
    BatchEntry,
    ModelInfo,
)
from portcullis.schemas.changes import GateChanged, ModelChanged
from portcullis.schemas.drift import DriftInfo
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import Calibrated, ScanResult, Unloaded
from portcullis.schemas.review import ReviewItem, ReviewPage

T = TypeVar("T")


class Client:
    """Talks to a running service; use it as a context manager, or `close` it. Safe to share between threads."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._configuration = Configuration(url, key, **options)
        self._http = httpx.Client(**self._configuration.connection(), transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- everybody's -------------------------------------------------------------------------------------------------

    def predict(self, image: Image, **choice: Unpack[Choice]) -> Answer:
        """The answer for one image, given as path, bytes or open file. A rejected image is an answer."""
        return self._call(calls.predict(image, choice))

    def predict_batch(self, images: Iterable[Image], **choice: Unpack[Choice]) -> list[BatchEntry]:
        """An answer or an error for each image, in order; any number of them, sent in parts."""
        return self._run(self._configuration.batch(images, choice))

    def is_ready(self) -> bool:
        """Whether the service would answer now."""
        try:
            return self._run(converse(calls.ready(), NO_RETRIES)).status == "ready"
        except ClientError:
            return False

    def models(self) -> list[ModelInfo]:
        """Everything that is served."""
        return self._call(calls.models()).models

    def model(self, name: str) -> ModelInfo:
        """One model with its versions."""
        return self._call(calls.model(name))

    def gate(self, name: str) -> GateInfo:
        """The gate in force."""
        return self._call(calls.gate(name))

    def drift(self, name: str) -> DriftInfo:
        """Recent traffic against the reference: evidence, PSI, KS, reject ratio, class mix."""
        return self._call(calls.drift(name))

    # -- with an admin key: `behind` of each answer names the workers that have not followed within a few seconds ----

    def set_gate(self, name: str, operating_point: str | None = None, *, threshold: float | None = None) -> GateChanged:
        """Change the gate in every worker: such as accept97.5 or accept95:by-class+right99, or an absolute score."""
        return self._call(calls.set_gate(name, operating_point, threshold))

    def load(self, name: str, version: int) -> ModelChanged:
        """Serve a version beside the default."""
        return self._call(calls.load(name, version))

    def swap(self, name: str, version: int | None = None, *, pin: bool | None = None) -> ModelChanged:
        """Choose the version that answers; none: the newest."""
        return self._call(calls.swap(name, version, pin))

    def unload(self, name: str, version: int | None = None) -> Unloaded | ModelChanged:
        """Stop serving a model, or one version of it that is not the default."""
        if version is None:
            return self._call(calls.unload(name))
        return self._call(calls.unload_version(name, version))

    def rescan(self) -> ScanResult:
        """Look for newer versions in the models directory and adopt them."""
        return self._call(calls.rescan())

    def calibrate(self, name: str, *, version: int | None = None, activate: bool = False) -> Calibrated:
        """Calibrate the gate on labelled images of the review queue, as its next version. May take minutes."""
        return self._call(calls.calibrate(name, version, activate))

    def start_shadow(self, name: str, version: int, share: float) -> ModelChanged:
        """Show a candidate version a share of the traffic; its answers are compared, never returned."""
        return self._call(calls.start_shadow(name, version, share))

    def promote_shadow(self, name: str) -> ModelChanged:
        """Let the candidate answer from now on."""
        return self._call(calls.promote_shadow(name))

    def drop_shadow(self, name: str) -> ModelChanged:
        """Forget the candidate."""
        return self._call(calls.drop_shadow(name))

    def review(self, **chosen: Unpack[Filter]) -> ReviewPage:
        """One page of the review queue, the strangest first."""
        return self._call(calls.review(chosen))

    def review_items(self, **chosen: Unpack[Filter]) -> Iterator[ReviewItem]:
        """The whole review queue, page by page."""
        while True:
            page = self.review(**chosen)
            yield from page.items
            if page.next_cursor is None:
                return
            chosen["cursor"] = page.next_cursor

    def review_image(self, item: str) -> bytes:
        """The image of one item, as it came."""
        return self._call(calls.review_image(item))

    def label_review(self, item: str, label: str) -> ReviewItem:
        """Say what the image of one item shows."""
        return self._call(calls.review_change(item, {"label": label}))

    def dismiss_review(self, item: str) -> ReviewItem:
        """Say that one item is of no use."""
        return self._call(calls.review_change(item, {"state": "dismissed"}))

    def reopen_review(self, item: str) -> ReviewItem:
        """Take back a label or a dismissal."""
        return self._call(calls.review_change(item, {"state": "open"}))

    # -- how ---------------------------------------------------------------------------------------------------------

    def _call(self, call: Call[T]) -> T:
        return self._run(converse(call, self._configuration.retries))

    def _run(self, conversation: Conversation[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = self._do(step)

    def _do(self, step: Call[Any] | Pause) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(**self._configuration.request(step))
        except httpx.TransportError as error:
            return error
