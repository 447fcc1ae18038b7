"""A real S3-compatible server (moto) on 127.0.0.1, whose objects outlive its going away and coming back."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, Signature=none"}


class ObjectStore:
    """One server; tests put objects there without a client of AWS's: moto looks who signed, not whether rightly."""

    def __init__(self) -> None:
        self._port = 0
        self._server: ThreadedMotoServer | None = None
        self.come_back()
        self._url = f"http://127.0.0.1:{self._port}"
        self.environment = CREDENTIALS | {"AWS_ENDPOINT_URL": self._url}

    def come_back(self) -> None:
        if self._server is not None:
            return
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        self._port = self._server.get_host_and_port()[1]

    def go_away(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def bucket(self, name: str) -> str:
        """A new bucket; the URL of bundles in it."""
        self._put(name, b"")
        return f"s3://{name}/models"

    def write(self, bucket: str, key: str, content: bytes) -> None:
        """One object below that URL."""
        self._put(f"{bucket}/models/{key}", content)

    def put(self, path: Path, bucket: str, files: Iterable[str]) -> None:
        """Some files of the bundle at `path`, in this order."""
        for file in files:
            self.write(bucket, f"{path.parent.name}/{path.name}/{file}", (path / file).read_bytes())

    def _put(self, path: str, content: bytes) -> None:
        httpx.put(f"{self._url}/{path}", content=content, headers=SIGNED, timeout=60).raise_for_status()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """One server; what fsspec has opened in this process is of a server before it, whose address it would keep."""
    S3FileSystem.clear_instance_cache()
    store = ObjectStore()
    try:
        yield store
    finally:
        store.go_away()
