"""The asynchronous client: the same calls, awaited."""

import asyncio
from collections.abc import AsyncIterator, Iterable
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


class AsyncClient:
    """Talks to a running service; use it with `async with`, or `close` it."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._configuration = Configuration(url, key, **options)
        self._http = httpx.AsyncClient(**self._configuration.connection(), transport=transport)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # -- everybody's -------------------------------------------------------------------------------------------------

    async def predict(self, image: Image, **choice: Unpack[Choice]) -> Answer:
        """The answer for one image, given as path, bytes or open file. A rejected image is an answer."""
        return await self._call(calls.predict(image, choice))

    async def predict_batch(self, images: Iterable[Image], **choice: Unpack[Choice]) -> list[BatchEntry]:
        """An answer or an error for each image, in order; any number of them, sent in parts."""
        return await self._run(self._configuration.batch(images, choice))

    async def is_ready(self) -> bool:
        """Whether the service would answer now."""
        try:
            return (await self._run(converse(calls.ready(), NO_RETRIES))).status == "ready"
        except ClientError:
            return False

    async def models(self) -> list[ModelInfo]:
        """Everything that is served."""
        return (await self._call(calls.models())).models

    async def model(self, name: str) -> ModelInfo:
        """One model with its versions."""
        return await self._call(calls.model(name))

    async def gate(self, name: str) -> GateInfo:
        """The gate in force."""
        return await self._call(calls.gate(name))

    async def drift(self, name: str) -> DriftInfo:
        """Recent traffic against the reference: evidence, PSI, KS, reject ratio, class mix."""
        return await self._call(calls.drift(name))

    # -- with an admin key: `behind` of each answer names the workers that have not followed within a few seconds ----

    async def set_gate(
        self, name: str, operating_point: str | None = None, *, threshold: float | None = None
    ) -> GateChanged:
        """Change the gate in every worker: such as accept97.5 or accept95:by-class+right99, or an absolute score."""
        return await self._call(calls.set_gate(name, operating_point, threshold))

    async def load(self, name: str, version: int) -> ModelChanged:
        """Serve a version beside the default."""
        return await self._call(calls.load(name, version))

    async def swap(self, name: str, version: int | None = None, *, pin: bool | None = None) -> ModelChanged:
        """Choose the version that answers; none: the newest."""
        return await self._call(calls.swap(name, version, pin))

    async def unload(self, name: str, version: int | None = None) -> Unloaded | ModelChanged:
        """Stop serving a model, or one version of it that is not the default."""
        if version is None:
            return await self._call(calls.unload(name))
        return await self._call(calls.unload_version(name, version))

    async def rescan(self) -> ScanResult:
        """Look for newer versions in the models directory and adopt them."""
        return await self._call(calls.rescan())

    async def calibrate(self, name: str, *, version: int | None = None, activate: bool = False) -> Calibrated:
        """Calibrate the gate on labelled images of the review queue, as its next version. May take minutes."""
        return await self._call(calls.calibrate(name, version, activate))

    async def start_shadow(self, name: str, version: int, share: float) -> ModelChanged:
        """Show a candidate version a share of the traffic; its answers are compared, never returned."""
        return await self._call(calls.start_shadow(name, version, share))

    async def promote_shadow(self, name: str) -> ModelChanged:
        """Let the candidate answer from now on."""
        return await self._call(calls.promote_shadow(name))

    async def drop_shadow(self, name: str) -> ModelChanged:
        """Forget the candidate."""
        return await self._call(calls.drop_shadow(name))

    async def review(self, **chosen: Unpack[Filter]) -> ReviewPage:
        """One page of the review queue, the strangest first."""
        return await self._call(calls.review(chosen))

    async def review_items(self, **chosen: Unpack[Filter]) -> AsyncIterator[ReviewItem]:
        """The whole review queue, page by page."""
        while True:
            page = await self.review(**chosen)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            chosen["cursor"] = page.next_cursor

    async def review_image(self, item: str) -> bytes:
        """The image of one item, as it came."""
        return await self._call(calls.review_image(item))

    async def label_review(self, item: str, label: str) -> ReviewItem:
        """Say what the image of one item shows."""
        return await self._call(calls.review_change(item, {"label": label}))

    async def dismiss_review(self, item: str) -> ReviewItem:
        """Say that one item is of no use."""
        return await self._call(calls.review_change(item, {"state": "dismissed"}))

    async def reopen_review(self, item: str) -> ReviewItem:
        """Take back a label or a dismissal."""
        return await self._call(calls.review_change(item, {"state": "open"}))

    # -- how ---------------------------------------------------------------------------------------------------------

    async def _call(self, call: Call[T]) -> T:
        return await self._run(converse(call, self._configuration.retries))

    async def _run(self, conversation: Conversation[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self._do(step)

    async def _do(self, step: Call[Any] | Pause) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(**self._configuration.request(step))
        except httpx.TransportError as error:
            return error
