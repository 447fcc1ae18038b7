"""What is served, as a document says it: read, refused, followed by a real service."""

from pathlib import Path

import httpx
import pytest

from portcullis.bundle.sources.source import DirectorySource
from portcullis.errors import SettingsError
from portcullis.lifecycle.document import DocumentFollower, read_document
from portcullis.settings import Settings
from portcullis.store.notes import read_notes
from portcullis.store.state import Shadow, StateStore
from tests import tiny
from tests.hammer import eventually
from tests.running import RunningService
from tests.sabotage import ADMIN, audit_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    for version in (1, 2):
        tiny.write(directory, version=version)
    return directory


class Desk:
    """A document and who follows it."""

    def __init__(self, models, runtime, database):
        self.file, self.database = runtime / "served.toml", database
        settings = Settings(models=models, runtime_directory=runtime, state=f"file:{self.file}")
        self.follower, self.store = DocumentFollower(database, settings, DirectorySource(models)), StateStore(database)

    def write(self, text):
        self.file.write_text(text)
        self.follower.look()

    def served(self):
        model = self.store.read().models["tiny"]
        return model.default, model.gate


@pytest.fixture
def desk(directory, tmp_path, local):
    return Desk(directory, tmp_path, local)


def test_it_says_versions_gates_and_candidates_and_the_rest_comes_from_the_settings(desk):
    desk.write("[models.tiny]")
    assert desk.served() == (2, "accept95")
    desk.write('[models.tiny]\ndefault = 1\ngate = "accept80"\nloaded = [2]\nshadow = { version = 2, share = 0.5 }')
    assert desk.served() == (1, "accept80")
    shadow = desk.store.read().models["tiny"].shadow
    assert shadow == Shadow(version=2, share=0.5, session=1)
    desk.write("[models.tiny]\ndefault = 1\nshadow = { version = 2, share = 0.9 }")
    assert desk.store.read().models["tiny"].shadow.session == 1  # the same comparison goes on
    assert [line["key"] for line in desk.store.audit()] == ["(document)"] * 2


def test_the_same_document_is_no_change(desk):
    desk.write("[models.tiny]")
    desk.write("[models.tiny]\n# as it was")
    assert desk.store.read().revision == 0 and desk.store.audit() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[models.tiny]\ndefault = 7", "no bundle tiny/7"),
        ("[models.nobody]", "no bundle is there"),
        ('[models.tiny]\ngate = "accept99.9999"', "accept99.9999"),
        ("[models.tiny]\ndefalt = 1", "models.tiny.defalt"),
        ("[models", "refused"),
    ],
)
def test_what_cannot_be_served_changes_nothing_and_says_why(desk, text, complaint):
    desk.write("[models.tiny]")
    desk.write(text)
    assert complaint in read_notes(desk.database)["document"]
    assert desk.served() == (2, "accept95")
    desk.write("[models.tiny]\ndefault = 1")
    assert (desk.served()[0], read_notes(desk.database)) == (1, {})


def test_a_first_start_needs_a_document_and_a_later_one_goes_on_without(desk):
    with pytest.raises(SettingsError, match="cannot be read"):
        desk.follower.begin()
    desk.write("[models.tiny]")
    desk.file.unlink()
    assert desk.follower.begin().models["tiny"].default == 2


def test_a_mounted_config_map_is_followed_when_its_link_is_swapped(desk, tmp_path):
    """Kubernetes never writes such a file: it makes another directory, and has the link in its place at once."""

    def mount(number, text):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / desk.file.name).write_text(text)
        (tmp_path / "..new").symlink_to(str(number))
        (tmp_path / "..new").rename(tmp_path / "..data")
        desk.follower.look()

    desk.file.symlink_to(Path("..data") / desk.file.name)
    mount(1, "[models.tiny]\ndefault = 1")
    assert desk.served() == (1, "accept95")
    mount(2, '[models.tiny]\ndefault = 2\ngate = "accept80"')
    assert desk.served() == (2, "accept80")


def test_json_is_read_too(tmp_path):
    file = tmp_path / "served.json"
    file.write_text('{"models": {"tiny": {"default": 1}}}')
    assert read_document(file).models["tiny"].default == 1


@pytest.mark.slow
def test_a_running_service_follows_the_document_and_lets_nobody_else_change_it(directory, tmp_path):
    file = tmp_path / "served.toml"
    file.write_text("[models.tiny]\ndefault = 1")
    with (
        RunningService(directory, tmp_path / "runtime", "--state", f"file:{file}", "--workers", "1") as service,
        httpx.Client(base_url=service.url, headers=ADMIN, timeout=30) as client,
    ):
        file.write_text("[models.tiny]\ndefault = 2")
        eventually(lambda: client.get("/v1/models/tiny").json()["default_version"] == 2)
        for call in (("PUT", "/v1/models/tiny/default", {"version": 1}), ("POST", "/v1/models/rescan", None)):
            answer = client.request(call[0], call[1], json=call[2])
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
            assert f"managed in file:{file}" in answer.json()["error"]["message"]
        file.write_text("nonsense")
        eventually(lambda: "portcullis_state_document_refused 1.0" in client.get("/metrics").text)
        assert client.get("/readyz").status_code == 200
    assert [line["action"] for line in audit_of(tmp_path / "runtime")] == ["document"]
