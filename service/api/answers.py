"""Writes answers: one way to send JSON, one shape for every error."""

from typing import Any

import orjson

from service.api.requests import Send
from service.errors import ServiceError

JSON = (b"content-type", b"application/json")


def error_body(error: ServiceError, request_id: str) -> dict[str, Any]:
    """The one JSON shape of a refusal."""
    return {"error": {"code": error.code, "message": str(error), "request_id": request_id}}


def error_headers(error: ServiceError) -> list[tuple[bytes, bytes]]:
    headers = []
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


async def send_json(send: Send, status: int, content: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """Send `content` as JSON; NaN becomes null, as JSON has none."""
    body = orjson.dumps(content)
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [JSON, (b"content-length", str(len(body)).encode()), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ServiceError, request_id: str) -> None:
    await send_json(send, error.status.value, error_body(error, request_id), error_headers(error))
