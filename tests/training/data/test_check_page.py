"""What `check-data` finds in a folder with everything wrong with it, says in lines and shows on a page."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from portcullis_training.__main__ import main
from portcullis_training.data import check_page
from portcullis_training.data.contact_sheet import LINE_HEIGHT, MARGIN, Row, contact_sheet, of_file, of_pixels
from tests.training.photos import write_photos

HEIC = b"\x00\x00\x00\x18ftypheic" + bytes(200)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three classes of 30, 30 and 5, and in them what real folders have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    root = write_photos(tmp_path / "photos", per_class=30)
    for path in sorted((root / "sky").iterdir())[5:]:
        path.unlink()
    brick, grass = root / "brick", root / "grass"
    (brick / "cut.jpg").write_bytes((brick / "000.jpg").read_bytes()[:400])
    shutil.copy(brick / "001.jpg", grass / "same.jpg")
    shutil.copy(grass / "002.jpg", grass / "again.jpg")
    with Image.open(grass / "003.jpg") as photo:
        photo.resize((photo.width * 3 // 4, photo.height * 3 // 4)).save(grass / "smaller.jpg", quality=70)
        clear = photo.convert("RGBA")
    clear.putalpha(200)
    clear.rotate(90, expand=True).save(grass / "clear.png")
    (grass / "IMG_1.HEIC").write_bytes(HEIC)
    (grass / "renamed.jpg").write_bytes(HEIC)
    return root


def test_everything_wrong_with_a_folder_is_said_and_named(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-data", f"folder:{photos}", "--output", "look"]) == 0
    said = capsys.readouterr().out
    page = Path("look", check_page.PAGE_FILE).read_text()
    for line in (
        "66 photos of 3 classes, from 5 (sky) to 32 (grass)",
        "2 files cannot be read",
        "2 files are copies under different labels, and left out",
        "1 copy is left out",
        "2 photos have near-duplicates, which stay on one side of the split",
        "to be converted to JPEG or PNG first: 1 .heic",
        "fewer than 20 photos, too few to be learned well: sky",
        "accept99 is out of reach",
        f"looked at {photos}: look/data.md",
    ):
        assert line in said
    for line in (
        "- brick/cut.jpg: the image is broken or cut short",
        "- grass/renamed.jpg: expected an image (PNG, JPEG, WEBP, GIF, BMP, TIFF), got HEIC",
        "- brick/001.jpg = grass/same.jpg",
        "- grass/002.jpg = grass/again.jpg",
        "- grass/003.jpg ≈ grass/smaller.jpg",
        "- .heic: 1",
        "| sky | 5 | 7.6% | 2 | 1 | 1 | 1 |",
        "`--class-balance 0.5`",
    ):
        assert line in page


def test_the_page_has_contact_sheets_and_none_where_photos_are_private(photos: Path) -> None:
    assert main(["check-data", f"folder:{photos}", "--output", "look"]) == 0
    page = Path("look", check_page.PAGE_FILE).read_text()
    for name in (check_page.CLASSES_FILE, check_page.TWINS_FILE):
        assert f"]({name})" in page
        with Image.open(Path("look", name)) as sheet:
            assert sheet.width > 900 and len(sheet.getcolors(2**20) or ()) > 1000  # photos, not paper alone
    assert main(["check-data", f"folder:{photos}", "--output", "look", "--no-pictures"]) == 0
    assert [path.name for path in Path("look").iterdir()] == [check_page.PAGE_FILE]
    assert "](" not in Path("look", check_page.PAGE_FILE).read_text()


def test_a_class_in_a_format_that_is_not_read_is_named_with_what_it_holds(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "tree").mkdir()
    (photos / "tree" / "IMG_2.HEIC").write_bytes(HEIC)
    assert main(["check-data", f"folder:{photos}"]) == 1
    assert "no training image of class 'tree', whose folder holds 1 .heic; expected" in capsys.readouterr().err


def test_a_sheet_has_a_place_for_every_tile_and_a_blank_for_a_file_that_is_gone(tmp_path: Path) -> None:
    red = of_pixels(np.full((20, 10, 3), (255, 0, 0), np.uint8), "red")
    gone = of_file(tmp_path / "gone.jpg", "gone")
    with Image.open(io.BytesIO(contact_sheet([Row("nine", [red] * 8 + [gone])]))) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    assert len(pixels) == 2 * MARGIN + 2 * LINE_HEIGHT  # the ninth is in a second line
    is_red = (pixels == (255, 0, 0)).all(axis=2)
    columns = is_red.any(axis=0).astype(int)
    assert (np.diff(columns) == 1).sum() == 8 and not is_red[MARGIN + LINE_HEIGHT :].any()
