"""The page for people: what it finds in a small folder of photos with one wrong label, and that it can keep quiet."""

import shutil
from pathlib import Path

import pytest

from portcullis_training.__main__ import main
from portcullis_training.exporting import answers_page
from portcullis_training.fitting import frozen_head
from portcullis_training.fitting.staged import train
from portcullis_training.measuring.calibration import calibrate
from portcullis_training.measuring.held_out import PartFigures, are_siblings
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run, create_run
from tests.training.photos import photos_config, write_photos, write_weights

pytestmark = pytest.mark.slow
SHEETS = {answers_page.MISTAKES_FILE, answers_page.STRANGEST_FILE, answers_page.DOUBTS_FILE}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """Frozen and calibrated, on photos of which one grass lies with the bricks."""
    root = tmp_path_factory.mktemp("answers")
    photos = write_photos(root / "photos", per_class=40)
    shutil.move(photos / "grass" / "007.jpg", photos / "brick" / "wrong.jpg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.setattr(frozen_head, "MIN_STEPS", 100)  # a head for each fold, and one to keep
        run = create_run(root / "runs", photos_config(photos, write_weights(root / "small.pt")))
        train(run, show_progress=False)
        calibrate(run)
        answers_page.write_answers(run)
        yield run


def page_of(run: Run) -> tuple[Path, str]:
    folder = run.directory / answers_page.FOLDER
    return folder, (folder / answers_page.PAGE_FILE).read_text()


def test_the_wrong_label_is_found_and_shown(run):
    folder, text = page_of(run)
    section = text.partition("## Labels to look at")[2].partition("## ")[0]
    doubted = [line.partition(". ")[2] for line in section.splitlines() if line[:1].isdigit()]
    assert any(line.startswith("brick/wrong.jpg") and "looks like grass" in line for line in doubted)
    assert 0 < len(doubted) < 12, "of 120 photos"
    assert (folder / answers_page.DOUBTS_FILE).stat().st_size > 1000


def test_every_class_has_its_row_and_every_picture_of_the_page_is_there(run):
    folder, text = page_of(run)
    table = text.partition("## Class by class")[2]
    assert all(f"| {name} | " in table for name in ("brick", "grass", "sky"))
    shown = {part.partition(")")[0] for part in text.split("](")[1:]}
    assert shown >= {answers_page.CONFUSION_FILE, answers_page.RELIABILITY_FILE, answers_page.RISK_COVERAGE_FILE}
    assert all((folder / name).is_file() for name in shown)


def test_the_splits_stand_beside_each_other(run):
    table = page_of(run)[1].partition("## Are the calibration images like the others?")[2].partition("## ")[0]
    rows = {line.split(" | ")[0].strip("| "): line for line in table.splitlines() if line.startswith("| ")}
    assert {"validation", "calibration", "test"} < rows.keys()
    assert f"| {len(open_trained(run).splits.calibration)} |" in rows["calibration"]
    assert "siblings" not in table  # all splits are drawn alike


@pytest.mark.parametrize(("num_right", "expected"), [(391, True), (345, False), (300, False)])
def test_calibration_images_that_are_answered_better_than_those_of_the_test_are_called_siblings(num_right, expected):
    calibration = PartFigures("calibration", 396, num_right, 20)
    assert are_siblings([calibration, PartFigures("test", 2485, 2102, 287)]) is expected


def test_without_pictures_no_photo_is_shown_and_none_of_an_earlier_page_is_left(run, capsys):
    assert main(["answers", str(run.directory), "--no-pictures"]) == 0
    folder, text = page_of(run)
    assert not SHEETS & {path.name for path in folder.iterdir()}
    assert not any(name in text for name in SHEETS)
    assert "brick/wrong.jpg" in text, "named still"
    assert str(folder / answers_page.PAGE_FILE) in capsys.readouterr().out
    assert main(["answers", str(run.directory)]) == 0
    assert (folder / answers_page.STRANGEST_FILE).is_file()


def test_images_of_an_array_are_named_by_their_place(evaluated_run):
    answers_page.write_answers(evaluated_run)
    folder, text = page_of(evaluated_run)
    assert "\n1. image " in text and "held out from training" in text
    assert (folder / answers_page.STRANGEST_FILE).is_file()
