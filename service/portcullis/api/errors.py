"""The one shape of every error."""

from typing import Any

from portcullis.errors import ServiceError


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
