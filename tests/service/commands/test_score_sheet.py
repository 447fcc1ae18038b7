"""A sheet survives a stop at any byte; Parquet holds what CSV holds."""

import csv
import dataclasses
from pathlib import Path

import pytest

from portcullis.commands.scoring.rows import ScoreRow
from portcullis.commands.scoring.sheet import COLUMNS, ScoreSheet
from portcullis.errors import PortcullisError

ROWS = [
    ScoreRow("a.png", "m", 1, "cat", 0, 0.1 + 0.2, -3.5, -3.5, 0.25, -4.0, "accept95", "accept"),
    ScoreRow(
        'b "quoted", with\nline break.png',
        "m",
        1,
        "dog, big",
        1,
        0.5,
        None,
        None,
        0.001,
        -4.0,
        None,
        "reject",
        "stranger",
    ),
    ScoreRow("ü.png", error="bad_image: expected an image"),
    ScoreRow("z.png", "m", 1, "cat", 0, 1e-12, 1 / 3, None, 1.0, -4.0, "accept95", "accept"),
]


def write(out, rows, finish=True):
    with ScoreSheet(out) as sheet:
        for row in rows:
            if row.file not in sheet.done:
                sheet.append(row)
        if finish:
            sheet.finish()
        return sheet


def read(out):
    with out.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_csv_holds_every_digit(tmp_path):
    write(tmp_path / "s.csv", ROWS)
    rows = read(tmp_path / "s.csv")
    assert [row["file"] for row in rows] == [row.file for row in ROWS]
    assert float(rows[0]["probability"]) == 0.1 + 0.2 and float(rows[3]["score"]) == 1 / 3
    assert rows[1]["score"] == "" and rows[2]["error"] == "bad_image: expected an image"


def test_a_sheet_cut_at_any_byte_is_taken_up_again_without_loss_or_repeat(tmp_path):
    whole = tmp_path / "whole.csv"
    write(whole, ROWS)
    content = whole.read_bytes()
    out = tmp_path / "cut.csv"
    for length in range(len(content) + 1):
        out.write_bytes(content[:length])
        write(out, ROWS)
        assert out.read_bytes() == content, length


def test_a_rerun_knows_what_is_done_and_by_which_model(tmp_path):
    write(tmp_path / "s.csv", ROWS[:3])
    with ScoreSheet(tmp_path / "s.csv") as sheet:
        assert sheet.done == {row.file for row in ROWS[:3]}
        assert sheet.scored_by == {("m", "1")}


def test_another_file_is_not_overwritten(tmp_path):
    out = tmp_path / "mine.csv"
    out.write_text("name,age\nann,3\n")
    with pytest.raises(PortcullisError, match="not a score sheet"):
        write(out, ROWS)
    assert out.read_text() == "name,age\nann,3\n"


def test_an_unknown_ending_is_refused():
    with pytest.raises(PortcullisError, match=r"\.csv or \.parquet"):
        ScoreSheet(Path("scores.xlsx"))


def test_parquet_holds_the_rows_with_their_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "s.parquet"
    write(out, ROWS)
    table = parquet.read_table(out)
    assert table.column_names == COLUMNS
    assert table.to_pylist() == [dataclasses.asdict(row) for row in ROWS]
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]


def test_a_parquet_sheet_is_resumed_and_added_to(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "s.parquet"
    write(out, ROWS[:2], finish=False)
    assert not out.exists()
    write(out, ROWS[:3])
    assert parquet.read_table(out).num_rows == 3
    write(out, ROWS)
    assert parquet.read_table(out).to_pylist() == [dataclasses.asdict(row) for row in ROWS]
