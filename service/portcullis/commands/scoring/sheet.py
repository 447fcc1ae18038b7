"""The score sheet: one row a file, appended as they come, so that a run that was stopped can be taken up again.

A CSV sheet is its own record. A Parquet sheet is gathered in a CSV beside it and turned into Parquet at the end.
"""

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from portcullis.commands.scoring.rows import ScoreRow
from portcullis.errors import PortcullisError

COLUMNS = [field.name for field in dataclasses.fields(ScoreRow)]
PARQUET_ROWS = 50_000
_ARROW_TYPES = {"version": "int32", "class_index": "int32"} | dict.fromkeys(
    ("probability", "score", "mmles", "p_value", "threshold"), "float64"
)


class ScoreSheet:
    """Use as a context manager; `finish` when every row is there."""

    def __init__(self, out: Path) -> None:
        if out.suffix not in (".csv", ".parquet"):
            raise PortcullisError(f"expected a file that ends in .csv or .parquet, got {out.name}")
        self._out = out
        self._is_parquet = out.suffix == ".parquet"
        self._journal = out.with_name(out.name + ".partial.csv") if self._is_parquet else out
        self.done: set[str] = set()
        """Names of the files that have their row already."""
        self.scored_by: set[tuple[str, str]] = set()
        """Model and version of the rows that are there."""

    def __enter__(self) -> "ScoreSheet":
        if self._is_parquet:
            _pyarrow()  # say at once what is missing, not after an hour
        try:
            if self._is_parquet and self._out.exists() and not self._journal.exists():
                self._unpack()
            self._stream = self._open()
        except OSError as error:
            raise PortcullisError(f"cannot write {self._journal}: {error.strerror}") from None
        self._writer = csv.writer(self._stream, lineterminator="\n")
        if self._stream.tell() == 0:
            self._writer.writerow(COLUMNS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def append(self, row: ScoreRow) -> None:
        """Add one row; it is on its way to the disk when this returns."""
        self._writer.writerow(dataclasses.astuple(row))
        self._stream.flush()

    def finish(self) -> None:
        """Turn the record into what was asked for; the sheet appears whole or not at all."""
        self._stream.close()
        if self._is_parquet:
            draft = self._out.with_name(self._out.name + ".draft")
            _to_parquet(self._journal, draft)
            draft.replace(self._out)
            self._journal.unlink()

    def _open(self) -> IO[str]:
        """The record, opened to append behind its last whole row."""
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        self._journal.touch()
        with self._journal.open("r+b") as stream:
            end = self._recover(stream)
            stream.truncate(end)
        return self._journal.open("a", newline="", encoding="utf-8")

    def _recover(self, stream: IO[bytes]) -> int:
        """Learn what is done; gives where the last whole row ends."""
        end = 0
        for number, (row, row_end) in enumerate(_whole_rows(stream)):
            if number == 0 and row != COLUMNS:
                raise PortcullisError(f"{self._journal} is not a score sheet of this version; choose another --out")
            if number > 0:
                self.done.add(row[0])
                self.scored_by |= {(row[1], row[2])} if row[1] else set()
            end = row_end
        return end

    def _unpack(self) -> None:
        """A finished Parquet sheet back into a record, so that files that came later can be added."""
        parquet = _pyarrow().parquet
        draft = self._journal.with_name(self._journal.name + ".draft")
        with draft.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            for batch in parquet.ParquetFile(self._out).iter_batches(PARQUET_ROWS, columns=COLUMNS):
                writer.writerows([row[name] for name in COLUMNS] for row in batch.to_pylist())
        draft.replace(self._journal)


def _whole_rows(stream: IO[bytes]) -> Iterator[tuple[list[str], int]]:
    """Rows that are complete, each with the offset behind it; a line that was cut short is left out.

    A quoted field may hold line breaks, so a row ends at a line break with an even number of quotes before it.
    """
    row, end = b"", 0
    for line in stream:
        row += line
        if row.endswith(b"\n") and row.count(b'"') % 2 == 0:
            end += len(row)
            yield next(csv.reader([row.decode("utf-8", "replace")])), end
            row = b""


def _to_parquet(journal: Path, target: Path) -> None:
    arrow = _pyarrow()
    types = {name: getattr(arrow, _ARROW_TYPES.get(name, "string"))() for name in COLUMNS}
    options = {
        "parse_options": arrow.csv.ParseOptions(newlines_in_values=True),
        "convert_options": arrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""]),
    }
    with (
        arrow.csv.open_csv(journal, **options) as reader,
        arrow.parquet.ParquetWriter(target, reader.schema, compression="zstd") as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise PortcullisError("a Parquet sheet needs pyarrow: pip install 'portcullis[parquet]'") from None
    return pyarrow
