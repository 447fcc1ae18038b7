"""Refusals in the shape of the Open Inference Protocol: `{"error": "…"}`."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from portcullis.api.documents import accepted, errors
from portcullis.api.front import exchange_of
from portcullis.api.open_inference.schemas import ProtocolError
from portcullis.errors import (
    BadRequest,
    BundleError,
    DeadlineExceeded,
    Forbidden,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
    StateNotWritten,
    Unauthorized,
    UnknownModel,
)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ProtocolRoute(APIRoute):
    """A route whose refusals have the protocol's shape."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                problems = "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors()[:5])
                return refusal(request, BadRequest(problems))
            except ServiceError as error:
                return refusal(request, error)

        return answer


def refusal(request: Request, error: ServiceError) -> Response:
    """An error as the protocol writes it."""
    exchange_of(request.scope).error_code = error.code
    headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
    return Response(orjson.dumps({"error": str(error)}), int(error.status), headers, "application/json")


def refusals(*kinds: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    documented = errors(*kinds)
    return {
        status: {"model": ProtocolError, "description": entry["description"]} for status, entry in documented.items()
    }


READ = refusals(Unauthorized, Forbidden, UnknownModel, BadRequest)
CHANGE = refusals(Unauthorized, Forbidden, UnknownModel, BadRequest, PayloadTooLarge, BundleError, StateNotWritten)
INFER = refusals(Unauthorized, Forbidden, UnknownModel, BadRequest, PayloadTooLarge, Overloaded, DeadlineExceeded)
ACCEPTED = accepted(ProtocolError)
