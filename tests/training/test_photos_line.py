"""A folder in, a served, calibrated, gated bundle out, in one command: also if it is stopped on the way."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.preprocess import decode
from portcullis_training.__main__ import main
from portcullis_training.fitting import fit, frozen_head
from portcullis_training.fitting.feature_store import FeatureStore
from tests.training.photos import photos_config, write_photos, write_weights

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """Also where the tests were started in the background, whose processes inherit that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(frozen_head, "MIN_STEPS", 100)
    photos = write_photos(tmp_path / "photos", per_class=60)
    config = photos_config(photos, write_weights(tmp_path / "small.pt"), name="mine", epochs=1)
    Path("photos.json").write_text(config.model_dump_json())
    return ["run", "--recipe", "photos.json", "--no-cost"]


def test_a_folder_becomes_a_bundle_though_it_is_stopped_while_encoding_and_fine_tuning(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    encoded: list[str] = []
    original = FeatureStore.add

    def add(self, digests, rows):
        original(self, digests, rows)
        encoded.extend(digests)
        if len(encoded) == len(digests):  # the first of several batches
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(FeatureStore, "add", add)
    assert main(command) == 130
    shown = capsys.readouterr()
    assert "interrupted: what is done is kept; go on with the same command\n" in shown.err
    assert "180 photos of 3 classes, 60 each" in shown.out and (tmp_path / "runs/mine/data/classes.png").is_file()
    train_step = fit.Fitting.train_step
    with monkeypatch.context() as patch:
        patch.setattr(
            fit.Fitting, "train_step", lambda *given: train_step(*given) or os.kill(os.getpid(), signal.SIGINT)
        )
        assert main(command) == 130
    assert "go on with the same command\n" in capsys.readouterr().err and not (tmp_path / "models" / "mine").exists()
    assert main(command) == 0
    shown_last = capsys.readouterr().out
    assert "next: portcullis serve --models models --default-model mine" in shown_last
    assert "the whole run took" in shown_last
    frozen = [digest for digest in encoded if encoded.count(digest) > 2]
    assert not frozen, "by the frozen backbone once, and once more by the fine-tuned one where that is kept"
    assert (tmp_path / "runs/mine/answers/answers.md").is_file()
    assert json.loads((tmp_path / "runs/mine/stages.json").read_text())["content"]["epochs"] == 1
    bundle = load_bundle(tmp_path / "models" / "mine" / "1")
    assert tuple(bundle.manifest.labels) == ("brick", "grass", "sky")
    photo = decode((tmp_path / "photos" / "sky" / "000.jpg").read_bytes(), bundle.manifest.image)
    assert Engine(bundle).run(photo[None]).probabilities.shape == (1, 3)


def test_going_on_without_overwriting_is_said_where_it_matters(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FeatureStore, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main([*command, "--overwrite"]) == 130
    assert "go on with the same command, without --overwrite" in capsys.readouterr().err
