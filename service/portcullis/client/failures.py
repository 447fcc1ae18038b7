"""What can go wrong when a service is asked: every error carries code, message, status and request_id."""

from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from portcullis.errors import PortcullisError


class ClientError(PortcullisError):
    """The service gave no answer; `code` says why in one word."""

    def __init__(self, code: str, message: str, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.request_id = code, message, status, request_id

    def __str__(self) -> str:
        reference = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({self.code}{reference})"

    def __reduce__(self) -> tuple[Any, ...]:  # so that it survives a process pool
        return type(self), (self.code, self.message, self.status, self.request_id)


class Refused(ClientError):
    """4xx: the request is at fault; sending it again would not help."""


class Failed(ClientError):
    """5xx: the service is at fault."""


class Busy(Failed):
    """503, still, after every retry that was allowed."""

    retry_after_seconds: float | None = None
    """How long the service asked to be left alone, where that was longer than this client may wait."""


class Unreachable(ClientError):
    """No connection, or one that broke before an answer came."""


class TimedOut(Unreachable):
    """No answer within `timeout_seconds`."""


class Unreadable(ClientError):
    """An answer came, but not one of this service's: another version, or another server."""


def from_transport(error: httpx.TransportError) -> Unreachable:
    """The typed error for a request that got no answer."""
    address = f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    if isinstance(error, httpx.TimeoutException):
        return TimedOut("timeout", f"no answer from {address} in time ({type(error).__name__})")
    return Unreachable("unreachable", f"cannot reach {address}: {error or type(error).__name__}")


def from_response(response: httpx.Response) -> ClientError:
    """The typed error for an answer that is a refusal."""
    status = response.status_code
    kind = Busy if status == httpx.codes.SERVICE_UNAVAILABLE else Failed if status >= 500 else Refused
    detail = _detail(response)
    error = kind(
        str(detail.get("code") or f"http_{status}"),
        str(detail.get("message") or f"the server answered {status} {response.reason_phrase}"),
        status,
        detail.get("request_id") or response.headers.get("x-request-id"),
    )
    if isinstance(error, Busy):
        error.retry_after_seconds = retry_after_seconds(response)
    return error


def retry_after_seconds(response: httpx.Response) -> float | None:
    """The wait that the server asks for, in either of the two ways that HTTP has to say it."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        then, now = (parsedate_to_datetime(value) for value in (text, response.headers["date"]))
        return max(0.0, (then - now).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def _detail(response: httpx.Response) -> dict[str, Any]:
    try:
        detail = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return detail if isinstance(detail, dict) else {"message": str(detail)}
