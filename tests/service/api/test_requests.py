"""Reading bodies: what is large is taken apart while the event loop turns, what is small is not worth a thread."""

import asyncio
import base64
import contextlib
import os

import pytest

from portcullis.api.forms import MAX_OTHER_FIELDS
from portcullis.api.requests import BASE64_PIECE, read_body, read_files, read_image
from portcullis.errors import BadRequest, PayloadTooLarge
from portcullis.http.protocol import SMALL_BODY_BYTES

LARGE = os.urandom(20 * SMALL_BODY_BYTES + 7)
SMALL = os.urandom(1000)
FORM = "multipart/form-data; boundary=x"


def form(*files, others=0):
    field = b'--x\r\ncontent-disposition: form-data; name="f"%s\r\n\r\n%s\r\n'
    named = [field % (b'; filename="%d"' % number, file) for number, file in enumerate(files)]
    return b"".join([field % (b"", b"note")] * others + named) + b"--x--"


def request(body, content_type, piece=SMALL_BODY_BYTES):
    """The scope of a request, and a `receive` that never waits: whoever gives way to others does so by itself."""
    pieces = [body[start : start + piece] for start in range(0, len(body), piece)] or [b""]
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False

    async def receive():
        return messages.pop(0)

    return {"headers": [(b"content-type", content_type.encode())]}, receive


async def turns_during(work):
    """What `work` gives, and whether the event loop turned while it was done."""
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(turn())
    outcome = await work
    has_turned = turns > 0
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return outcome, has_turned


@pytest.mark.parametrize(("image", "is_large"), [(LARGE, True), (SMALL, False)], ids=["large", "small"])
async def test_only_large_bodies_are_taken_apart_beside_the_event_loop(image, is_large):
    json_body = b'{"image": "%s"}' % base64.b64encode(image)
    for body, kind in ((image, "image/png"), (json_body, "application/json"), (form(image), FORM)):
        assert await turns_during(read_image(*request(body, kind), limit=10**8)) == (image, is_large), kind
    files = [("0", image), ("1", b"other")]
    assert await turns_during(read_files(*request(form(image, b"other"), FORM), 10**8, 2)) == (files, is_large)
    assert await turns_during(read_body(*request(image, ""), 10**8)) == (image, is_large)


@pytest.mark.parametrize("num_bytes", [0, 1, 2, 3, BASE64_PIECE // 4 * 3 - 1, BASE64_PIECE, 3 * BASE64_PIECE + 1])
async def test_base64_in_pieces_is_base64(num_bytes):
    image = os.urandom(num_bytes)
    body = b'{"image": "%s"}' % base64.b64encode(image)
    assert await read_image(*request(body, "application/json"), limit=10**8) == image


@pytest.mark.parametrize(
    "text",
    ["A", "AAA", "AA=A", "AAA=AAAA", "A" * BASE64_PIECE + "AAA", "A" * (BASE64_PIECE - 1) + "=AAAA", "AA\nAA", "ÄÄÄÄ"],
)
async def test_what_is_not_base64_is_refused(text):
    body = b'{"image": "%s"}' % text.replace("\n", "\\n").encode()
    with pytest.raises(BadRequest, match="not base64"):
        await read_image(*request(body, "application/json"), limit=10**8)


async def test_a_form_with_a_few_other_fields_is_read_and_one_of_nothing_else_is_not():
    few = form(b"image", others=MAX_OTHER_FIELDS)
    assert await read_files(*request(few, FORM), 10**8, 1) == [("0", b"image")]
    with pytest.raises(PayloadTooLarge, match=f"at most {MAX_OTHER_FIELDS} fields beside the files"):
        await read_files(*request(form(b"image", others=MAX_OTHER_FIELDS + 1), FORM), 10**8, 1)


@pytest.mark.parametrize("piece", [1, 7, 64])
async def test_a_form_may_be_cut_anywhere(piece):
    body = form(b"first\r\n--y", b"\r\n--", b"")
    files = [("0", b"first\r\n--y"), ("1", b"\r\n--"), ("2", b"")]
    assert await read_files(*request(body, FORM, piece), 10**8, 3) == files
