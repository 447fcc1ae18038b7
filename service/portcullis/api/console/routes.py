"""Serves the console at `/`: files of our own, read once at start, no outside host, a strict policy."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

from portcullis.errors import NotFound

DIRECTORY = Path(__file__).parent / "static"
INDEX = "index.html"
READ = ["GET", "HEAD"]
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # no string can become markup or code, whatever the page does
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # The browser keeps a copy and asks each time whether it still holds: a new release is seen at once.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}


@dataclass(frozen=True)
class Asset:
    """One file as it is sent."""

    media_type: str
    plain: bytes
    gzipped: bytes
    etag: str


def console_router(directory: Path = DIRECTORY) -> APIRouter:
    """Routes of the page and its files. They want no key: the page holds no secret, and asks for one itself."""
    assets = load_assets(directory)
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=READ)
    async def page(request: Request) -> Response:
        return _answer(assets[INDEX], request)

    @router.api_route("/console/{path:path}", methods=READ)
    async def file(path: str, request: Request) -> Response:
        if path not in assets:
            raise NotFound("the console has no such file")
        return _answer(assets[path], request)

    return router


def load_assets(directory: Path) -> dict[str, Asset]:
    """Every file below `directory` by its path. Only these are ever served, so no path can lead elsewhere."""
    return {
        path.relative_to(directory).as_posix(): _asset(path) for path in sorted(directory.rglob("*")) if path.is_file()
    }


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    media_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain; charset=utf-8"
    return Asset(media_type, content, gzip.compress(content, 9, mtime=0), hashlib.sha256(content).hexdigest()[:24])


def _answer(asset: Asset, request: Request) -> Response:
    is_gzipped = "gzip" in request.headers.get("accept-encoding", "")
    # Each encoding is a representation of its own, and so has a tag of its own.
    etag = f'"{asset.etag}-gzip"' if is_gzipped else f'"{asset.etag}"'
    headers = HEADERS | {"etag": etag}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers |= {"content-encoding": "gzip"}
    return Response(asset.gzipped if is_gzipped else asset.plain, headers=headers, media_type=asset.media_type)
