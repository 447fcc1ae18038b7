"""Contact sheets: rows of small pictures, each with a line of text, as one PNG. Knows pixels and words alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from portcullis.bundle.preprocess import Pixels, open_picture
from portcullis.errors import PortcullisError

TILE, GAP, TEXT_HEIGHT, MAX_TILES = 112, 6, 15, 8
MARGIN = 10
STEP, LINE_HEIGHT = TILE + GAP, TEXT_HEIGHT + TILE + TEXT_HEIGHT + GAP
PAPER, INK, FAINT = (255, 255, 255), (32, 38, 46), (110, 118, 128)


@dataclass(frozen=True, eq=False)
class Tile:
    """One picture, opened when it is drawn, and what stands below it."""

    open: Callable[[], Image.Image]
    caption: str


@dataclass(frozen=True, eq=False)
class Row:
    """A heading and the pictures below it."""

    title: str
    tiles: Sequence[Tile]


def of_file(path: Path, caption: str) -> Tile:
    """A file, decoded no larger than needed."""
    return Tile(lambda: open_picture(path.read_bytes(), TILE), caption)


def of_pixels(pixels: Pixels, caption: str) -> Tile:
    """Pixels that are there already."""
    return Tile(lambda: Image.fromarray(pixels), caption)


def contact_sheet(rows: Sequence[Row], num_columns: int = MAX_TILES) -> bytes:
    """PNG of the rows; short ones stand side by side, one that is too long goes on in the next line."""
    lines = _lines(rows, num_columns)
    width = 2 * MARGIN + num_columns * STEP - GAP
    sheet = Image.new("RGB", (width, 2 * MARGIN + len(lines) * LINE_HEIGHT), PAPER)
    for number, line in enumerate(lines):
        left = MARGIN
        for row in line:
            _draw(sheet, row, left, MARGIN + number * LINE_HEIGHT)
            left += max(1, len(row.tiles)) * STEP
    stream = io.BytesIO()
    sheet.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _lines(rows: Sequence[Row], num_columns: int) -> list[list[Row]]:
    pieces = [Row(row.title, row.tiles[start : start + num_columns])
              for row in rows for start in range(0, max(len(row.tiles), 1), num_columns)]  # fmt: skip
    lines: list[list[Row]] = []
    room = 0
    for piece in pieces:
        needed = max(1, len(piece.tiles))
        if needed > room:
            lines.append([])
            room = num_columns
        lines[-1].append(piece)
        room -= needed
    return lines


def _draw(sheet: Image.Image, row: Row, left: int, top: int) -> None:
    draw = ImageDraw.Draw(sheet)
    width = max(1, len(row.tiles)) * STEP - GAP
    draw.text((left, top), _fitting(row.title, width), font=_font(), fill=INK)
    for column, tile in enumerate(row.tiles):
        _paste(sheet, tile, left + column * STEP, top + TEXT_HEIGHT)
        caption = _fitting(tile.caption, TILE)
        draw.text((left + column * STEP, top + TEXT_HEIGHT + TILE), caption, font=_font(), fill=FAINT)


def _paste(sheet: Image.Image, tile: Tile, left: int, top: int) -> None:
    """The whole picture, as large as the tile allows; a blank where it cannot be opened any more."""
    try:
        picture = tile.open()
    except (PortcullisError, OSError):
        return
    scale = TILE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    resized = picture.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)
    sheet.paste(resized, (left + (TILE - size[0]) // 2, top + (TILE - size[1]) // 2))


def _fitting(text: str, width: int) -> str:
    while text and _font().getlength(text) > width:
        text = text[:-2] + "…" if len(text) > 2 else ""
    return text


@cache
def _font() -> ImageFont.FreeTypeFont:
    """DejaVu, which comes with matplotlib: class names are not always Latin."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 11)
