"""The command line as a person meets it, against real services."""

import csv
import json
import shlex

import numpy as np
import pytest

from portcullis.__main__ import main
from portcullis.client import Client
from portcullis.commands.settings_sources import load
from portcullis_training.__main__ import build_parser as build_training_parser
from portcullis_training.commands import overrides
from portcullis_training.commands.parser import parse
from portcullis_training.data import load as load_images
from portcullis_training.recipes import RECIPES
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY
from tests.service.pictures import BROKEN, RED, STRANGE, encode


@pytest.fixture
def here(running_service, monkeypatch, tmp_path):
    """A folder with three images, and the address of a service in the environment."""
    monkeypatch.setenv("PORTCULLIS_URL", running_service.url)
    monkeypatch.chdir(tmp_path)
    for name, content in (("red.png", RED), ("strange.png", STRANGE), ("broken.png", BROKEN)):
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def admin(reviewed_service, monkeypatch, tmp_path):
    monkeypatch.setenv("PORTCULLIS_URL", reviewed_service.url)
    monkeypatch.setenv("PORTCULLIS_API_KEY", ADMIN_KEY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_predict_prints_a_table(here, capsys):
    assert main(["predict", "red.png", "strange.png"]) == 0
    header, red, strange = lines(capsys)
    assert header.split() == ["file", "label", "probability", "score", "p-value", "verdict"]
    assert red.split()[:2] == ["red.png", "red"] and red.endswith("accept")
    assert strange.startswith("strange.png") and strange.endswith("reject: stranger")


def test_predict_gives_each_file_its_own_error(here, capsys):
    assert main(["predict", "broken.png", "red.png", "missing.png"]) == 1
    _, broken, red, missing = lines(capsys)
    assert "bad_image" in broken and "unreadable: No such file" in missing and red.endswith("accept")


def test_predict_fails_on_reject_only_when_asked(here, capsys):
    assert main(["predict", "red.png", "--fail-on-reject"]) == 0
    assert main(["predict", "strange.png"]) == 0
    assert main(["predict", "red.png", "strange.png", "--fail-on-reject"]) == 3
    assert main(["predict", "strange.png", "--fail-on-reject", "--threshold", "-100"]) == 0


def test_predict_prints_json(here, capsys):
    main(["predict", "red.png", "broken.png", "--json"])
    red, broken = map(json.loads, lines(capsys))
    assert (red["file"], red["answer"]["label"], red["error"]) == ("red.png", "red", None)
    assert broken["answer"] is None and broken["error"]["code"] == "bad_image"


def test_no_service_is_one_clear_line(capsys, here, monkeypatch):
    monkeypatch.setattr("portcullis.client.sync_client.time.sleep", lambda seconds: None)
    assert main(["predict", "red.png", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.startswith("portcullis: cannot reach http://127.0.0.1:9")


def test_score_writes_a_sheet_and_a_rerun_adds_what_is_new(here, capsys):
    assert main(["score", ".", "--out", "s.csv"]) == 0
    assert lines(capsys)[-1] == "s.csv: 3 images scored: 1 accepted, 1 rejected, 1 broken"
    content = (here / "s.csv").read_bytes()
    (here / "s.csv").write_bytes(content[:-10])  # stopped in the middle of a line
    (here / "later.png").write_bytes(RED)
    assert main(["score", ".", "--out", "s.csv"]) == 0
    assert lines(capsys)[-1].startswith("s.csv: 2 images scored") and (here / "s.csv").read_bytes()[:50] == content[:50]
    with (here / "s.csv").open(newline="") as stream:
        assert sorted(row["file"] for row in csv.DictReader(stream)) == [
            "broken.png", "later.png", "red.png", "strange.png",
        ]  # fmt: skip


def test_score_needs_no_service_with_a_bundle(here, models, capsys, monkeypatch):
    monkeypatch.delenv("PORTCULLIS_URL")
    arguments = ["score", ".", "--out", "s.csv", "--bundle", str(models / "tiny" / "1")]
    assert main([*arguments, "--operating-point", "accept99"]) == 0
    with (here / "s.csv").open(newline="") as stream:
        assert {row["operating_point"] for row in csv.DictReader(stream)} == {"accept99", ""}
    assert main([*arguments, "--model", "tiny"]) == 1
    assert "--bundle is a model by itself" in capsys.readouterr().err


def test_one_sheet_holds_one_version(here, tmp_path, models, capsys):
    other = tmp_path / "models"
    tiny.write(other, version=2)
    assert main(["score", ".", "--out", "s.csv"]) == 0
    (here / "later.png").write_bytes(RED)
    assert main(["score", ".", "--out", "s.csv", "--bundle", str(other / "tiny" / "2")]) == 1
    assert "holds rows of tiny/1, not tiny/2" in capsys.readouterr().err


def test_models_lists_what_is_served(here, capsys):
    assert main(["models"]) == 0
    header, tiny_line = lines(capsys)
    assert header.startswith("model") and tiny_line.split()[:3] == ["tiny", "1", "default"]
    assert main(["models", "--json"]) == 0
    assert json.loads(lines(capsys)[0])["name"] == "tiny"


def test_gate_shows_and_changes(admin, capsys):
    assert main(["gate"]) == 0
    assert "accept95" in lines(capsys)[0]
    assert main(["gate", "tiny", "--threshold", "-4.5"]) == 0
    assert "accepts mmles scores from -4.5000" in lines(capsys)[0]
    assert main(["gate", "--set", "accept95"]) == 0
    assert lines(capsys)[0].endswith("rejects at most 5 % of familiar images")
    assert main(["gate", "--set", "accept99", "--key", "not-the-key"]) == 1
    assert "forbidden" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused_in_one_line(admin, capsys, number):
    for command in (["gate", "--threshold=" + number], ["models", "shadow", "tiny", "2", "--", number]):
        assert main(command) == 1
        assert f"that is a finite number, got {number} (invalid_parameter)" in capsys.readouterr().err


def test_models_are_loaded_shadowed_and_unloaded(admin, reviewed_service, capsys):
    url = ["--url", reviewed_service.url]
    assert main(["models", *url, "load", "tiny", "2"]) == 0  # a flag of the command holds for its action
    assert [line.split()[2] for line in lines(capsys)[1:]] == ["default,", "beside"]
    assert main(["models", "shadow", "tiny", "2", "0.5"]) == 0
    assert "shadow" in lines(capsys)[2]
    assert main(["models", "promote", "tiny"]) == 0
    assert main(["models", "swap", "tiny", "1"]) == 0
    capsys.readouterr()
    assert main(["models", "shadow", "tiny", "2", "0.5"]) == 0
    assert main(["models", "drop", "tiny"]) == 0
    main(["models", "load", "tiny", "2"])
    assert main(["models", "unload", "tiny", "2"]) == 0
    assert main(["models", "rescan"]) == 0
    assert lines(capsys)[-1] == "adopted: nothing new"


def test_review_from_list_to_export(admin, capsys):
    noise = np.random.default_rng(77).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    (admin / "odd.png").write_bytes(encode(noise))
    assert main(["predict", "odd.png"]) == 0
    capsys.readouterr()

    def found():
        main(["review", "list", "--state", "open", "--limit", "500", "--json"])
        for item in map(json.loads, lines(capsys)):
            main(["review", "image", item["id"], "--out", "seen.png"])
            if (admin / "seen.png").read_bytes() == (admin / "odd.png").read_bytes():
                return item
        return None

    item = eventually(found)
    assert main(["review", "label", item["id"], "plaid"]) == 0
    assert main(["review", "export", "new", "--model", "tiny"]) == 0
    assert any(line.split() == ["plaid", "1"] for line in lines(capsys))
    assert (admin / "new" / "plaid" / f"{item['id']}.png").read_bytes() == (admin / "odd.png").read_bytes()
    assert main(["review", "list", "--state", "labelled"]) == 0
    assert "labelled: plaid" in capsys.readouterr().out
    assert main(["review", "dismiss", item["id"]]) == 0
    assert main(["review", "reopen", item["id"]]) == 0
    assert main(["review", "label", "nope", "plaid"]) == 1


def test_review_export_prints_a_training_command_that_works(admin, reviewed_service, capsys):
    with Client(reviewed_service.url, key=ADMIN_KEY) as client:
        assert main(["review", "export", "few"]) == 0
        assert "label at least 40 images of two labels or more" in lines(capsys)[-1]
        for number, item in enumerate(_forty_kept_images(client)):
            client.label_review(item, ("dots", "plaid")[number % 2])
        assert main(["review", "export", "new images"]) == 0
        command = lines(capsys)[-1].removeprefix("train on them with: ")
        for item in client.review_items(state="labelled"):
            client.reopen_review(item.id)
    program, *words = shlex.split(command)
    assert program == "portcullis-train"
    config = overrides.config_of(parse(build_training_parser(), words))
    assert config.model_copy(update={"data": RECIPES["photos"].data, "name": "photos"}) == RECIPES["photos"]
    splits = load_images(config.data, config)
    assert splits.class_names == ("dots", "plaid")
    assert len(splits.train) + len(splits.validation) + len(splits.calibration) + len(splits.test) == 40


def _forty_kept_images(client):
    random = np.random.default_rng(78)
    for item in client.review_items(state="labelled"):  # what other tests have left
        client.reopen_review(item.id)
    noise = [random.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(40)]
    list(client.predict_batch([encode(pixels) for pixels in noise]))

    def kept():
        found = [item.id for item in client.review_items(state="open")]
        return found[:40] if len(found) >= 40 else None

    return eventually(kept)


@pytest.mark.parametrize("command", ["", "serve", "predict", "score", "models", "gate", "review"])
def test_help_teaches_by_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "portcullis " in text.split("examples:" if command else "a first walk:")[1]


def test_the_clients_variables_do_not_disturb_the_server():
    environment = {"PORTCULLIS_URL": "http://x", "PORTCULLIS_API_KEY": "y", "PORTCULLIS_DATA": "z"}
    assert load({}, environment).port == 8000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--prot", "9000"], "portcullis serve: unknown argument --prot; did you mean --port?"),
        (["serve", "--work", "2"], "portcullis serve: unknown argument --work; did you mean --workers?"),
        (["predict", "a.png", "--treshold=3"], "portcullis predict: unknown argument --treshold=3; did you mean"),
        (["models", "load", "a", "1", "--jsn"], "portcullis models load: unknown argument --jsn; did you mean --json?"),
        (["gate", "a", "b"], "portcullis gate: unknown argument b; see portcullis gate --help"),
    ],
)
def test_an_unknown_flag_is_refused_in_one_line_with_the_nearest_one(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_serve_says_that_it_needs_linux(monkeypatch, capsys):
    monkeypatch.setattr("portcullis.commands.serve.sys.platform", "darwin")
    assert main(["serve"]) == 1
    assert capsys.readouterr().err == "portcullis: the server needs Linux, this is darwin; the client runs here\n"
