"""The outermost layer: gives every request an id, a bound on its body, a count, a log line and, whatever happens, an
answer.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from portcullis.api.bodies import Bodies, Held, is_small, max_bytes
from portcullis.api.context import Context
from portcullis.api.cors import Cors
from portcullis.api.errors import error_body, error_headers
from portcullis.api.requests import (
    REQUEST_ID,
    Receive,
    Scope,
    Send,
    bounded,
    header,
)
from portcullis.errors import ServiceError
from portcullis.http.connection import EXTENSION, Connection, Header, WholeResponse

logger = logging.getLogger(__name__)

PAGE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
JSON = (b"content-type", b"application/json")
BARE_HEADERS = PAGE_HEADERS[:1]  # JSON is never framed, nor has it links
UNMATCHED = "unmatched"
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})


class InternalError(ServiceError):
    """Something that should not happen did; the log says what, the client only that."""


class Front:
    """Wraps the application. A bare route reads its body by itself, and is trusted to stop in time."""

    def __init__(
        self,
        app: Any,
        context: Context,
        bare_routes: Mapping[str, Any],
        body_limit: Callable[[str], int],
        cors: Cors | None,
    ) -> None:
        self._app = app
        self._bare_routes = bare_routes
        self._body_limit = body_limit
        self._bodies = Bodies(max_bytes(context.settings))
        self._cors = cors
        self._metrics = context.metrics
        self._log = context.request_log
        self._tracing = context.tracing
        self._counters: dict[tuple[str, str, int], Any] = {}
        self._errors: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(send, _request_id(scope), _connection(scope))
        scope.setdefault("state", {})["exchange"] = exchange
        app, held = self._app, None
        if not is_small(scope):
            held = Held(self._bodies, receive)
            receive = held.receive
        route = self._bare_routes.get(scope["path"])
        if route is not None and scope["method"] == "POST":  # past a framework that these have no use for
            scope["route"], app, exchange.headers = route, route.bare, BARE_HEADERS
        else:
            receive = bounded(scope, receive, self._body_limit(scope["path"]))
        try:
            if self._cors is not None:
                exchange.headers += self._cors.headers(scope["headers"])
                app = self._cors.preflight_of(scope) or app
            await app(scope, receive, exchange.send)
        except Exception as error:
            await self._answer_failure(exchange, error)
        finally:
            if held is not None:
                held.release()
        self._account(scope, exchange)

    def turn_away(self, target: bytes, headers: list[Header]) -> WholeResponse | None:
        """The refusal of a request in a flood, before the framework or the body have cost anything."""
        route = self._bare_routes.get(target.decode("latin-1"))
        error = route.bare.flood() if route is not None else None
        if error is None:
            return None
        scope = {"method": "POST", "route": route, "headers": headers}
        exchange = Exchange(_nowhere, _request_id(scope), None)
        exchange.headers = (*BARE_HEADERS, *self.cross_origin(headers))
        answer = exchange.refusal(error)
        self._account(scope, exchange)
        return answer

    def cross_origin(self, request_headers: Iterable[Header]) -> Iterable[Header]:
        """What an answer says to a page of another origin; the server's own refusals say it too."""
        return () if self._cors is None else self._cors.headers(request_headers)

    async def _answer_failure(self, exchange: "Exchange", error: Exception) -> None:
        if not isinstance(error, ServiceError):
            logger.error("request %s failed", exchange.request_id, exc_info=error)
            error = InternalError("the service failed; the log has the cause under this request_id")
        if exchange.status == 0:
            await exchange.refuse(error)

    def _account(self, scope: Scope, exchange: "Exchange") -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if route != UNMATCHED else "any"  # nobody may fill our memory with invented methods
        key = (route, method, exchange.status)
        if key not in self._counters:
            self._counters[key] = self._metrics.http_requests.labels(route, method, str(exchange.status))
        self._counters[key].inc()
        code = exchange.error_code
        if code is not None:
            if code not in self._errors:
                self._errors[code] = self._metrics.errors.labels(code)
            self._errors[code].inc()
        if route not in _QUIET_ROUTES:
            is_logged = self._log.is_due()
            if is_logged or self._tracing is not None:
                self._write_record(scope, exchange, route, is_logged)

    def _write_record(self, scope: Scope, exchange: "Exchange", route: str, is_logged: bool) -> None:
        ended = time.monotonic()
        fields = {
            "event": "request",
            "method": scope["method"],
            "route": route,
            "status": exchange.status,
            "request_id": exchange.request_id,
            "seconds": round(ended - exchange.started, 6),
            **({"error": exchange.error_code} if exchange.error_code else {}),
            **exchange.notes(),
        }
        if is_logged:
            self._log.write(fields)
        if self._tracing is not None:
            self._tracing.record(scope["headers"], fields, exchange.started, ended)


class Exchange:
    """One request and its answer, as the outermost layer sees them."""

    __slots__ = ("_send", "connection", "error_code", "headers", "notes", "request_id", "started", "status")

    def __init__(self, send: Send, request_id: str, connection: Connection | None) -> None:
        self._send = send
        self.connection = connection
        """What the server offers beyond ASGI; None under another server."""
        self.request_id = request_id
        self.headers: tuple[Header, ...] = PAGE_HEADERS
        self.started = time.monotonic()
        self.status = 0
        self.error_code: str | None = None
        self.notes: Callable[[], dict[str, Any]] = dict
        """What the log line says beyond the usual; asked for only if a line is written."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._own_headers()]
        await self._send(message)

    async def answer(self, status: int, content: Any, *headers: Header) -> None:
        """Send `content` as JSON; NaN becomes null, as JSON has none."""
        await self._send_whole(self._whole(status, content, headers))

    async def refuse(self, error: ServiceError) -> None:
        """Send an error in the one shape that they all have."""
        await self._send_whole(self.refusal(error))

    def refusal(self, error: ServiceError) -> WholeResponse:
        """The same for a server that sends it by itself."""
        self.error_code = error.code
        return self._whole(int(error.status), error_body(error, self.request_id), error_headers(error))

    def _whole(self, status: int, content: Any, headers: Iterable[Header]) -> WholeResponse:
        self.status = status
        return WholeResponse(status, (JSON, *headers, *self._own_headers()), orjson.dumps(content))

    async def _send_whole(self, answer: WholeResponse) -> None:
        """In one write where the server offers that."""
        if self.connection is not None and self.connection.is_clear:
            self.connection.respond(answer)
            return
        headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body})

    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as the server tells."""
        return self.connection is not None and self.connection.is_gone()

    def _own_headers(self) -> tuple[Header, ...]:
        return ((b"x-request-id", self.request_id.encode()), *self.headers)


async def _nowhere(message: Any) -> None:
    """For an exchange whose answer the server sends by itself."""


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that a route belongs to."""
    exchange: Exchange = scope["state"]["exchange"]
    return exchange


def _connection(scope: Scope) -> Connection | None:
    extension = scope.get("extensions", {}).get(EXTENSION)
    return extension["connection"] if extension else None


def _request_id(scope: Scope) -> str:
    given = header(scope, b"x-request-id")
    if given is not None and REQUEST_ID.match(given):
        return given.decode()
    return f"{random.getrandbits(64):016x}"
