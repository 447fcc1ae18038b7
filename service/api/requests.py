"""Reads what a client sent: headers, query, body in any of its three kinds. Refuses what it does not understand."""

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import BadRequest, InvalidParameter, PayloadTooLarge, UnsupportedMediaType

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
File = tuple[str, bytes]

REQUEST_ID = re.compile(rb"^[A-Za-z0-9._~:/+=@-]{1,128}$")
FORM = "application/x-www-form-urlencoded"  # what `curl --data-binary` says of any body


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


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too long."""
    announced = header(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise PayloadTooLarge(f"expected at most {limit} bytes, got {int(announced)}")
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        body = bytes(message.get("body", b""))
        _check_length(len(body), limit)
        return body
    chunks = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise BadRequest("the client hung up before its body was complete")
        chunks += message.get("body", b"")
        _check_length(len(chunks), limit)
        if not message.get("more_body"):
            return bytes(chunks)
        message = await receive()


async def read_image(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The bytes of one image: the raw body, the one file of a form, or base64 in JSON."""
    kind = (header(scope, b"content-type") or b"application/octet-stream").decode("latin-1")
    media_type = kind.partition(";")[0].strip().lower()
    if media_type.startswith("image/") or media_type in ("application/octet-stream", FORM):
        return await read_body(scope, receive, limit)
    if media_type == "application/json":
        return _from_json(await read_body(scope, receive, limit * 4 // 3 + 1024), limit)
    if media_type == "multipart/form-data":
        files = parse_files(await read_body(scope, receive, limit + 65536), kind, max_files=1)
        _check_length(len(files[0][1]), limit)
        return files[0][1]
    raise UnsupportedMediaType(
        f"expected image/*, application/octet-stream, multipart/form-data or application/json, got {media_type[:80]!r}"
    )


async def read_files(scope: Scope, receive: Receive, max_bytes: int, max_files: int) -> list[File]:
    """The files of a multipart form, in order."""
    kind = (header(scope, b"content-type") or b"").decode("latin-1")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise UnsupportedMediaType(f"expected multipart/form-data, got {kind[:80]!r}")
    return parse_files(await read_body(scope, receive, max_bytes), kind, max_files)


def parse_files(body: bytes, content_type: str, max_files: int) -> list[File]:
    """Every part of a form that is a file (has a file name), in order, as (name, bytes)."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise BadRequest("the multipart form names no boundary")
    form = _Form(max_files)
    try:
        parser = MultipartParser(boundary, form.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise BadRequest(f"the multipart form is broken: {error}") from None
    if not form.is_complete:
        raise BadRequest("the multipart form is cut short")
    if not form.files:
        raise BadRequest("the multipart form holds no file")
    return form.files


class _Form:
    """Collects the files of a form from the parser's callbacks; other fields are passed over."""

    def __init__(self, max_files: int) -> None:
        self.files: list[File] = []
        self.is_complete = False
        self._max_files = max_files
        self._name, self._value, self._content = b"", b"", bytearray()
        self._file_name: str | None = None

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._content, self._file_name = bytearray(), None

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            name = parse_options_header(self._value)[1].get(b"filename")
            self._file_name = name.decode("utf-8", "replace")[:255] if name is not None else None
        self._name, self._value = b"", b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._file_name is not None:
            self._content += data[start:end]

    def _end(self) -> None:
        if self._file_name is None:
            return
        if len(self.files) == self._max_files:
            raise PayloadTooLarge(f"expected at most {self._max_files} file(s) in one request")
        self.files.append((self._file_name, bytes(self._content)))

    def _finish(self) -> None:
        self.is_complete = True


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
        image = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the field image is not base64") from None
    _check_length(len(image), limit)
    return image


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise PayloadTooLarge(f"expected at most {limit} bytes, got more than that")
