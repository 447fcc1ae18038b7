"""A stand-in for the Hugging Face Hub on 127.0.0.1: the few routes that its own client calls to list and to read."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """Repositories are directories, `<organisation>/<repository>`, each with one revision."""

    root: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if path[:2] == ["api", "models"]:
            self._api("/".join(path[2:4]), path[4:])
        elif path[2:3] == ["resolve"]:
            self._file(self.root.joinpath(*path[:2], *path[4:]))
        else:
            self._say(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """`paths-info`: what is known of some paths."""
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        wanted = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        repository = self.root.joinpath(*parts[2:4])
        self._say(200, [_entry(repository, repository / path) for path in wanted if (repository / path).exists()])

    def _api(self, name: str, rest: list[str]) -> None:
        repository = self.root / name
        if not repository.is_dir():
            self._say(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif rest[:1] == ["tree"]:
            below = repository.joinpath(*rest[2:])
            is_deep = "recursive=true" in self.path.lower()
            found = sorted(below.rglob("*") if is_deep else below.iterdir()) if below.is_dir() else None
            self._say(200, [_entry(repository, path) for path in found]) if found is not None else self._no_entry()
        else:
            self._say(200, {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": []})

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._no_entry()
            return
        content = path.read_bytes()
        headers = {"ETag": f'"{_digest(path)}"', "X-Repo-Commit": COMMIT, "Content-Type": "application/octet-stream"}
        self._send(200, content, headers)

    def _no_entry(self) -> None:
        self._say(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})

    def _say(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        pass


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def _entry(repository: Path, path: Path) -> dict[str, object]:
    name = path.relative_to(repository).as_posix()
    if path.is_dir():
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
    return {"type": "file", "oid": _digest(path), "size": path.stat().st_size, "path": name}


@contextmanager
def hub(root: Path) -> Iterator[str]:
    """Serve the repositories in a directory; the address, for HF_ENDPOINT."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Hub,), {"root": root}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
