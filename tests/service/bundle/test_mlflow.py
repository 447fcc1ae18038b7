"""Bundles in MLflow's model registry, against MLflow's own server and with its own client."""

import subprocess
import sys

import pytest

from portcullis.bundle.files import MANIFEST_FILE
from portcullis.bundle.signatures import Trust, make_key, sign
from portcullis.bundle.sources.mlflow_registry import MlflowRegistry
from portcullis.bundle.sources.moving import pull, push
from portcullis.bundle.sources.opening import Keeping, source_of
from portcullis.errors import BundleError, PortcullisError, SettingsError, SourceAway
from tests import tiny
from tests.mlflow_server import mlflow_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture(autouse=True)
def reached(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shelf")
    for version in (3, 5):
        tiny.write(directory, version=version, sharpness=1 + version / 100)
    return directory


@pytest.fixture(scope="module")
def pushed(server, shelf):
    """Bundle versions 3 and 5 as MLflow's versions 1 and 2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", server)
        assert push(shelf / "tiny" / "3", "models:/pets") == ("tiny/3", True)
        assert push(shelf / "tiny" / "5", "models:/pets") == ("tiny/5", True)
        assert push(shelf / "tiny" / "5", "models:/pets") == ("tiny/5", False)


def test_a_bundle_has_the_number_of_its_manifest_not_mlflows(pushed, tmp_path):
    source = source_of("models:/pets", Keeping(tmp_path, timeout_seconds=120), Trust())
    assert source.look().versions("tiny") == [3, 5]
    assert source.load("tiny", 5).label == "tiny/5"
    assert source.load("tiny", 3).label == "tiny/3"


def test_one_version_or_an_alias_may_be_asked_for(pushed, tmp_path):
    assert MlflowRegistry("models:/pets/1").look().versions("tiny") == [3]
    MlflowRegistry("models:/pets")._client.set_registered_model_alias("pets", "champion", "2")
    assert pull("models:/pets@champion", [], tmp_path, Trust()) == ["tiny/5"]
    assert (tmp_path / "tiny" / "5" / MANIFEST_FILE).is_file()


def test_a_signature_that_comes_later_is_pushed_and_counts(pushed, shelf, tmp_path):
    public = make_key(tmp_path / "key")
    with pytest.raises(BundleError, match="not signed"):
        pull("models:/pets", ["tiny@5"], tmp_path, Trust([public]))
    sign(shelf / "tiny" / "5", tmp_path / "key")
    assert push(shelf / "tiny" / "5", "models:/pets") == ("tiny/5", True)
    assert pull("models:/pets", ["tiny@5"], tmp_path, Trust([public])) == ["tiny/5"]


def test_what_is_registered_and_no_bundle_is_passed_over(pushed, server, tmp_path):
    registry = MlflowRegistry("models:/others")
    client = registry._client
    run = client.create_run(client.create_experiment("others"))
    (tmp_path / "weights").write_text("…")
    client.log_artifact(run.info.run_id, str(tmp_path / "weights"), "model")
    client.create_registered_model("others")
    client.create_model_version("others", f"{run.info.artifact_uri}/model", run.info.run_id)
    assert registry.look().names() == []


def test_a_model_that_is_not_registered_and_an_address_that_is_none_are_said(pushed, tmp_path):
    with pytest.raises(SettingsError, match="expected models:/name"):
        MlflowRegistry("models:/a/b/c")
    with pytest.raises(PortcullisError, match=r"models:/pets/77: .*not found"):
        pull("models:/pets/77", [], tmp_path, Trust())


def test_a_server_that_is_away_is_a_source_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(SourceAway, match="models:/pets cannot be reached"):
        source_of("models:/pets", Keeping(tmp_path, timeout_seconds=120), Trust()).look()


def test_the_command_pulls_from_a_registry(pushed, server, tmp_path):
    command = [sys.executable, "-m", "portcullis", "models", "pull", "models:/pets", "tiny@3", "--to", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/tiny/3\n"), done.stderr
