"""How the console's files are served: strictly, small, and from here alone."""

import gzip
import re

import httpx
import pytest

from portcullis.api.console.routes import DIRECTORY, POLICY, load_assets
from tests.running import RunningService

MAX_BYTES = 300_000
ASSETS = load_assets(DIRECTORY)
OUTSIDE = re.compile(rb"""(?:https?:)?//[a-z0-9-]+(?:\.[a-z0-9-]+)+""", re.IGNORECASE)


@pytest.fixture(scope="module")
def client(running_service):
    with httpx.Client(base_url=running_service.url) as client:
        yield client


def test_the_whole_page_weighs_less_than_300_kb():
    assert sum(len(asset.gzipped) for asset in ASSETS.values()) < MAX_BYTES


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline(client):
    policy = client.get("/").headers["content-security-policy"]
    assert policy == POLICY
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_has_no_inline_script_or_style():
    page = ASSETS["index.html"].plain.decode()
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page) == []


@pytest.mark.parametrize("path", [path for path in ASSETS if "LICENSE" not in path])
def test_no_file_names_another_host(path):
    namespace = b"//www.w3.org/"  # names SVG; nobody calls it
    comment_of_the_library = b"//github.com/leeoniya/uPlot"
    found = {match.group() for match in OUTSIDE.finditer(ASSETS[path].plain)}
    assert {host for host in found if not (namespace + comment_of_the_library).count(host.split(b":")[-1])} == set()


def test_every_vendored_library_carries_its_licence():
    libraries = {path.split("/")[1].split(".")[0] for path in ASSETS if path.startswith("vendor/")}
    assert libraries == {"uPlot", "client-zip"}
    assert all(b"MIT" in ASSETS[f"vendor/{library}.LICENSE.txt"].plain for library in libraries)


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("", "text/html"), ("console/js/main.js", "text/javascript"), ("console/css/parts.css", "text/css"),
     ("console/icon.svg", "image/svg+xml")],
)  # fmt: skip
def test_files_come_compressed_with_their_type_and_are_not_sent_twice(client, path, media_type):
    answer = client.get(f"/{path}")
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.content == ASSETS[path.removeprefix("console/") or "index.html"].plain
    again = client.get(f"/{path}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get(f"/{path}", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content
    assert plain.headers["etag"] != answer.headers["etag"]


def test_the_gzipped_form_is_the_plain_one():
    assert all(gzip.decompress(asset.gzipped) == asset.plain for asset in ASSETS.values())


@pytest.mark.parametrize("path", ["console/none.js", "console/../settings.py", "console/..%2fsettings.py", "console/"])
def test_only_the_consoles_own_files_are_served(client, path):
    assert client.get(f"/{path}").status_code == 404


def test_the_page_wants_no_key_but_what_it_shows_does(models, tmp_path):
    with RunningService(models, tmp_path, "--workers", "1", "--predict-keys", "reader:a-long-secret") as service:
        assert httpx.get(service.url).status_code == 200
        for route in ("reference", "report", "examples", "report/plots/x.png"):
            assert httpx.get(f"{service.url}/v1/models/tiny/{route}").status_code == 401
