"""Takes the files out of a multipart form. Knows no HTTP but the form's own headers."""

from collections.abc import Iterable
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from portcullis.errors import BadRequest, PayloadTooLarge

File = tuple[str, bytes]

MAX_OTHER_FIELDS = 64


def parse_files(chunks: Iterable[bytes], content_type: str, max_files: int) -> list[File]:
    """Every part of a form that is a file (has a file name), in order, as (name, bytes).

    Chunk by chunk, as the body came: one call for all of a large one would keep every other thread waiting.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise BadRequest("the multipart form names no boundary")
    form = _Form(max_files)
    try:
        parser = MultipartParser(boundary, form.callbacks())
        for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise BadRequest(f"the multipart form is broken: {error}") from None
    if not form.is_complete:
        raise BadRequest("the multipart form is cut short")
    if not form.files:
        raise BadRequest("the multipart form holds no file")
    return form.files


class _Form:
    """Collects the files of a form from the parser's callbacks; other fields are passed over."""

    def __init__(self, max_files: int) -> None:
        self.files: list[File] = []
        self.is_complete = False
        self._max_files, self._num_others = max_files, 0
        self._name, self._value, self._content = b"", b"", bytearray()
        self._file_name: str | None = None

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._content, self._file_name = bytearray(), None

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            name = parse_options_header(self._value)[1].get(b"filename")
            self._file_name = name.decode("utf-8", "replace")[:255] if name is not None else None
        self._name, self._value = b"", b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._file_name is not None:
            self._content += data[start:end]

    def _end(self) -> None:
        if self._file_name is None:
            self._num_others += 1
            if self._num_others > MAX_OTHER_FIELDS:
                raise PayloadTooLarge(f"expected at most {MAX_OTHER_FIELDS} fields beside the files")
            return
        if len(self.files) == self._max_files:
            raise PayloadTooLarge(f"expected at most {self._max_files} file(s) in one request")
        self.files.append((self._file_name, bytes(self._content)))

    def _finish(self) -> None:
        self.is_complete = True
