"""Cross-origin calls: which pages of other origins may read our answers, and the headers that tell their browsers so.

By hand rather than by middleware, because answers leave on three ways: the framework's, the bare routes' and the short
one of a flood. All take their headers from here.
"""

import re
from collections.abc import Iterable, Sequence

from starlette.responses import Response

from portcullis.api.requests import Scope, header
from portcullis.errors import Forbidden, SettingsError
from portcullis.http.connection import Header

ANY = "*"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null")
EXPOSED = (
    b"access-control-expose-headers",
    b"x-request-id, retry-after, server-timing, inference-header-content-length",
)
PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, DELETE, OPTIONS",
    "access-control-allow-headers": "*, authorization",  # by the standard a star does not cover that one
    "access-control-max-age": "600",
}
_ALLOW = b"access-control-allow-origin"
_VARY = (b"vary", b"origin")


class Cors:
    """The headers of an answer, by the origin of the page that asked."""

    def __init__(self, origins: Sequence[str]) -> None:
        for origin in origins:
            if origin != ANY and not ORIGIN.fullmatch(origin):
                raise SettingsError(f"cors_origins: expected an origin such as https://example.com, got {origin!r}")
        is_open = ANY in origins
        self._otherwise: tuple[Header, ...] = ((_ALLOW, b"*"), EXPOSED) if is_open else (_VARY,)
        self._by_origin: dict[bytes, tuple[Header, ...]] = (
            {} if is_open else {origin.encode(): ((_ALLOW, origin.encode()), EXPOSED, _VARY) for origin in origins}
        )

    def headers(self, request_headers: Iterable[Header]) -> tuple[Header, ...]:
        """What an answer to this request says; one whose origin is unknown says only that it depends on it."""
        origin = next((value for name, value in request_headers if name == b"origin"), b"")
        return self._by_origin.get(origin, self._otherwise)

    def preflight_of(self, scope: Scope) -> Response | None:
        """The answer to a browser that asks if it may call before it calls; None where it calls already."""
        if scope["method"] != "OPTIONS" or header(scope, b"access-control-request-method") is None:
            return None
        if EXPOSED not in self.headers(scope["headers"]):
            raise Forbidden("pages of this origin may not call this service; cors_origins names those that may")
        return Response(status_code=204, headers=PREFLIGHT)
