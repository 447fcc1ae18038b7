"""Reads what a client sent: headers, query, body in any of its three kinds. Refuses what it does not understand."""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson

from portcullis.api.forms import File, parse_files
from portcullis.errors import (
    BadRequest,
    ClientGone,
    InvalidParameter,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from portcullis.http.protocol import SMALL_BODY_BYTES

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Outcome = TypeVar("Outcome")

REQUEST_ID = re.compile(rb"^[A-Za-z0-9._~:/+=@-]{1,128}$")
FORM = "application/x-www-form-urlencoded"  # what `curl --data-binary` says of any body
BASE64_PIECE = 65536  # a multiple of four: a piece can be decoded by itself
MAX_CONTROL_BYTES = 1024 * 1024
"""Body of any call that brings no image."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """One header's value, by its lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def secret(scope: Scope) -> str | None:
    """The key that came along, from `Authorization: Bearer` or `X-API-Key`."""
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            return bytes(value).decode("latin-1").strip()
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:]).decode("latin-1").strip()
    return None


def query(scope: Scope, known: frozenset[str]) -> dict[str, str]:
    """The query's parameters; an unknown or repeated one is refused, since ignoring it would hide a typing error."""
    if not scope["query_string"]:
        return {}
    try:
        pairs = parse_qsl(scope["query_string"].decode("utf-8"), keep_blank_values=True, max_num_fields=32)
    except (UnicodeDecodeError, ValueError):
        raise InvalidParameter("the query string is not valid") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise InvalidParameter(f"unknown parameter {name[:40]!r}; there are: {', '.join(sorted(known))}")
        if name in parameters:
            raise InvalidParameter(f"parameter {name} is given twice")
        parameters[name] = value
    return parameters


def integer(parameters: dict[str, str], name: str, low: int, high: int) -> int | None:
    """An integer parameter within its bounds."""
    if name not in parameters:
        return None
    text = parameters[name]
    if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
        raise InvalidParameter(f"{name} must be a whole number from {low} to {high}, got {text[:40]!r}")
    return int(text)


def bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    """The same `receive` for whoever reads without looking: a body that is too long is refused, not handed on."""
    num_bytes = 0

    async def receive_within_limit() -> MutableMapping[str, Any]:
        nonlocal num_bytes
        if num_bytes == 0:
            _check_announced(scope, limit)
        message = await receive()
        num_bytes += len(message.get("body", b""))
        check_length(num_bytes, limit)
        return message

    return receive_within_limit


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too long."""
    _check_announced(scope, limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):  # in one piece, as most are
        body: bytes = message.get("body", b"")
        check_length(len(body), limit)
        return body
    chunks = await _chunks(message, receive, limit)
    return await _apart(chunks, b"".join, chunks)


async def read_chunks(scope: Scope, receive: Receive, limit: int) -> list[bytes]:
    """The same, in the pieces in which it came."""
    _check_announced(scope, limit)
    return await _chunks(await receive(), receive, limit)


async def _chunks(message: MutableMapping[str, Any], receive: Receive, limit: int) -> list[bytes]:
    """The body that begins with a message."""
    chunks: list[bytes] = []
    num_bytes = 0
    while message["type"] != "http.disconnect":
        chunks.append(message.get("body", b""))
        num_bytes += len(chunks[-1])
        check_length(num_bytes, limit)
        if not message.get("more_body"):
            return chunks
        message = await receive()
    raise ClientGone("the client hung up before its body was complete")


async def _apart(chunks: list[bytes], work: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Do what takes long with a large body on another thread; what is small is done sooner than a thread wakes."""
    if sum(map(len, chunks)) <= SMALL_BODY_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


async def read_image(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The bytes of one image: the raw body, the one file of a form, or base64 in JSON."""
    kind = (header(scope, b"content-type") or b"application/octet-stream").decode("latin-1")
    media_type = kind.partition(";")[0].strip().lower()
    if media_type.startswith("image/") or media_type in ("application/octet-stream", FORM):
        return await read_body(scope, receive, limit)
    if media_type == "application/json":
        body = await read_body(scope, receive, limit * 4 // 3 + 1024)
        return await _apart([body], _from_json, body, limit)
    if media_type == "multipart/form-data":
        chunks = await read_chunks(scope, receive, limit + 65536)
        files = await _apart(chunks, parse_files, chunks, kind, 1)
        check_length(len(files[0][1]), limit)
        return files[0][1]
    raise UnsupportedMediaType(
        f"expected image/*, application/octet-stream, multipart/form-data or application/json, got {media_type[:80]!r}"
    )


async def read_files(scope: Scope, receive: Receive, max_bytes: int, max_files: int) -> list[File]:
    """The files of a multipart form, in order."""
    kind = (header(scope, b"content-type") or b"").decode("latin-1")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise UnsupportedMediaType(f"expected multipart/form-data, got {kind[:80]!r}")
    chunks = await read_chunks(scope, receive, max_bytes)
    return await _apart(chunks, parse_files, chunks, kind, max_files)


def _from_json(body: bytes, limit: int) -> bytes:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error.msg}") from None
    if not isinstance(content, dict) or set(content) != {"image"} or not isinstance(content["image"], str):
        raise BadRequest('expected {"image": "<base64>"} and nothing else')
    text = content["image"]
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        image = _from_base64(text)
    except (binascii.Error, ValueError):
        raise BadRequest("the field image is not base64") from None
    check_length(len(image), limit)
    return image


def _from_base64(text: str) -> bytes:
    """Piece by piece: one call for all of a large text would keep every other thread waiting."""
    if text.find("=", 0, -2) != -1:
        raise ValueError("only the end of base64 is padded")
    pieces = (text[start : start + BASE64_PIECE] for start in range(0, len(text), BASE64_PIECE))
    return b"".join([base64.b64decode(piece, validate=True) for piece in pieces])


def _check_announced(scope: Scope, limit: int) -> None:
    announced = header(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise PayloadTooLarge(f"expected at most {limit} bytes, got {int(announced)}")


def check_length(length: int, limit: int) -> None:
    """Refuse what is too long."""
    if length > limit:
        raise PayloadTooLarge(f"expected at most {limit} bytes, got more than that")
