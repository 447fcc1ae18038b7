"""Routes that look at the key before anything else. FastAPI by itself reads the whole body first, asks afterwards."""

from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from portcullis.api.requests import Receive, Scope, Send, secret

_KEY_NAME = "key_name"


def keyed(check: Callable[[str | None], str | None]) -> type[APIRoute]:
    """The class of a router's routes; `check` raises, or gives the name of the key."""

    class KeyedRoute(APIRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] in (self.methods or ()):
                scope["state"][_KEY_NAME] = check(secret(scope))
            await super().handle(scope, receive, send)

    return KeyedRoute


async def key_name(request: Request) -> Any:
    """Whose key opened the route, for the audit log."""
    return request.scope["state"][_KEY_NAME]
