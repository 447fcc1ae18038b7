"""`portcullis models push, pull, keygen, sign` in a shell: an object store, a web server, a stand-in for the Hub."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from portcullis.bundle.files import MODEL_FILE, load_bundle
from tests import tiny
from tests.hub import hub
from tests.object_store import object_store

pytestmark = pytest.mark.slow


def run(*arguments, **environment):
    """What a command says: the last line of an error, or its output."""
    command = [sys.executable, "-m", "portcullis", "models", *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HF_"))}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=inherited | environment
    )
    if done.returncode:
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shelf")
    for version in (1, 2):
        tiny.write(directory, version=version, sharpness=1 + version / 100)
    return directory


def test_a_bundle_is_signed_pushed_and_pulled_by_whoever_trusts_its_key(shelf, tmp_path):
    first, second = shelf / "tiny" / "1", shelf / "tiny" / "2"
    public = run("keygen", tmp_path / "release.pem").strip()
    assert public.startswith("ed25519:")
    assert run("sign", second, "--private-key", tmp_path / "release.pem") == f"{second} is signed by {public}\n"
    with object_store() as store:
        url = store.bucket("pushed")
        assert run("push", first, url, **store.environment) == f"tiny/1 is at {url}\n"
        assert run("push", second, url, **store.environment) == f"tiny/2 is at {url}\n"
        assert run("push", second, url, **store.environment) == f"tiny/2 is at {url} already\n"
        there = tmp_path / "there"
        assert run("pull", url, "--to", there, "--trust", public, **store.environment) == f"{there}/tiny/2\n"
        assert "exists already" in run("pull", url, "--to", there, **store.environment)
        refused = run("pull", url, "tiny@1", "--to", there, "--trust", public, **store.environment)
        assert f"tiny/1 in {url}: bundle 1 is not signed" in refused
        assert "there are: tiny@1, tiny@2" in run("pull", url, "tiny@7", "--to", there, **store.environment)
    assert load_bundle(there / "tiny" / "2").label == "tiny/2"
    assert [path.name for path in (there / "tiny").iterdir()] == ["2"]
    assert "EndpointConnectionError" in run("pull", url, "--to", tmp_path / "away", **store.environment)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


def test_bundles_are_pulled_from_a_web_server_that_lists_its_directories(shelf, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(shelf)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        assert run("pull", url, "tiny@1", "--to", tmp_path) == f"{tmp_path}/tiny/1\n"
        assert run("pull", f"{url}/tiny/2", "--to", tmp_path) == f"{tmp_path}/tiny/2\n"  # one bundle, at the URL itself
        assert "takes no bundles" in run("push", shelf / "tiny" / "1", f"{url}/other-place")
    finally:
        server.shutdown()
        server.server_close()


def test_bundles_are_pulled_from_the_hub_by_its_own_client(shelf, tmp_path):
    shutil.copytree(shelf, tmp_path / "hub" / "acme" / "models")
    shutil.copytree(shelf / "tiny" / "2", tmp_path / "hub" / "acme" / "one")
    with hub(tmp_path / "hub") as endpoint:
        environment = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        assert run("pull", "hf://acme/models", "tiny@1", "--to", tmp_path, **environment) == f"{tmp_path}/tiny/1\n"
        assert run("pull", "hf://acme/one", "--to", tmp_path, **environment) == f"{tmp_path}/tiny/2\n"
        (tmp_path / "hub" / "acme" / "one" / MODEL_FILE).write_bytes(b"cut")
        refused = run("pull", "hf://acme/one", "--to", tmp_path / "again", **environment)
        assert "digest" in refused
    assert load_bundle(tmp_path / "tiny" / "2").label == "tiny/2"
