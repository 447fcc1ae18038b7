"""The error tree: each class knows whose fault it is, its HTTP status and its code.

A message is written for the person who can mend the matter; it never holds a path of this machine or a trace.
"""

from http import HTTPStatus
from typing import ClassVar


class PortcullisError(Exception):
    """Anything that is raised on purpose, with a message fit to be shown."""


class ServiceError(PortcullisError):
    """An error that reaches a client in the one JSON shape `{"error": {code, message, request_id}}`."""

    status: ClassVar[int] = HTTPStatus.INTERNAL_SERVER_ERROR
    code: ClassVar[str] = "internal"
    retry_after_seconds: ClassVar[int | None] = None


# -- the client's fault ----------------------------------------------------------------------------------------------


class BadRequest(ServiceError):
    """The request itself is malformed: no file in the form, broken JSON, a body cut short."""

    status = HTTPStatus.BAD_REQUEST
    code = "bad_request"


class BadImage(ServiceError):
    """The client sent bytes that do not decode to an image."""

    status = HTTPStatus.BAD_REQUEST
    code = "bad_image"


class PayloadTooLarge(ServiceError):
    """The body, or one file of it, has more bytes than the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "payload_too_large"


class ImageTooLarge(ServiceError):
    """The header announces more pixels than the limit; nothing was decoded."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "image_too_large"


class UnsupportedMediaType(ServiceError):
    """The Content-Type is none of those that the route reads."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "unsupported_media_type"


class HeadersTooLarge(ServiceError):
    """The request has more bytes of headers than any sensible one."""

    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    code = "headers_too_large"


class RequestTimeout(ServiceError):
    """The client took too long to send its request."""

    status = HTTPStatus.REQUEST_TIMEOUT
    code = "request_timeout"


class InvalidParameter(ServiceError):
    """A parameter has a value that it cannot take; the message names those it can."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid_parameter"


class UnknownOperatingPoint(ServiceError):
    """No such operating point, or the calibration set is too small to promise it."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "unknown_operating_point"


class UnknownModel(ServiceError):
    """No model of that name is served."""

    status = HTTPStatus.NOT_FOUND
    code = "unknown_model"


class UnknownVersion(ServiceError):
    """The model is served, but not in that version."""

    status = HTTPStatus.NOT_FOUND
    code = "unknown_version"


class NotFound(ServiceError):
    """No such route."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class UnknownReviewItem(ServiceError):
    """The review queue holds no such item, or no longer."""

    status = HTTPStatus.NOT_FOUND
    code = "unknown_review_item"


class MethodNotAllowed(ServiceError):
    """The route exists, but not for this method."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    code = "method_not_allowed"


class Unauthorized(ServiceError):
    """A key is needed and none came."""

    status = HTTPStatus.UNAUTHORIZED
    code = "unauthorized"


class Forbidden(ServiceError):
    """A key came, but not one that may do this; or the route is switched off."""

    status = HTTPStatus.FORBIDDEN
    code = "forbidden"


class BundleError(ServiceError):
    """A bundle is broken, incomplete or not what it says it is. It is refused; what is served goes on."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "bad_bundle"


# -- nobody's fault --------------------------------------------------------------------------------------------------


class ClientGone(ServiceError):
    """The client has hung up; nobody is there to read this, but it is counted, and apart from our own failures."""

    status = 499  # as proxies count it; no standard has a number for it
    code = "client_gone"


# -- the service's own state -----------------------------------------------------------------------------------------


class Overloaded(ServiceError):
    """The queue is full: better to say so at once than to let a backlog grow."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "overloaded"
    retry_after_seconds = 1


class Unavailable(ServiceError):
    """The worker is not ready: starting or draining."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"
    retry_after_seconds = 1


class DeadlineExceeded(ServiceError):
    """The answer would have come too late; the work was dropped."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    code = "deadline_exceeded"


class Conflict(ServiceError):
    """What is asked for does not fit what is served now; the message says what would."""

    status = HTTPStatus.CONFLICT
    code = "conflict"


class DatabaseAway(ServiceError):
    """The database cannot be reached or does not answer: nothing can be changed, what is served goes on."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "database_away"
    retry_after_seconds = 5


class DatabaseDamaged(DatabaseAway):
    """The file of the database is damaged; the supervisor moves it aside and makes another."""


class SourceAway(ServiceError):
    """Bundles cannot be fetched from where they are: nothing new can be loaded, what is served goes on."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "source_away"
    retry_after_seconds = 5


class StateNotWritten(ServiceError):
    """The disk of the database is full or takes no writes: nothing was changed, what is served goes on."""

    status = HTTPStatus.INSUFFICIENT_STORAGE
    code = "state_not_written"


class ReviewFailure(ServiceError):
    """The review store cannot be read or written; answers are not touched by it."""

    code = "review_failure"


class EngineError(ServiceError):
    """The engine failed, answered in the wrong shape, or cannot run where it was asked to."""

    code = "engine_failure"


class OutOfDeviceMemory(EngineError):
    """A batch did not fit into the memory of the device; a smaller one may."""


class DeviceLost(EngineError):
    """The device answers this process no more, whatever it is asked; another process may find it again."""


class ProviderUnavailable(EngineError):
    """An execution provider does not start on this machine; the message says which and why."""

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"{provider} does not start here: {reason}")


class SettingsError(PortcullisError):
    """A setting is unknown or has a value it cannot take; start-up stops."""


class DirectoryTaken(SettingsError):
    """Another instance runs on the runtime directory."""
