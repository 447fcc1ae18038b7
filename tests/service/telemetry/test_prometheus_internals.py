"""The metrics' files lean on prometheus-client's own parts, which may change in any release: here that would show."""

import struct

import pytest
from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

from portcullis.telemetry import files
from portcullis.telemetry.files import AllocatedFile
from tests.service.internals import assert_has, inherited, touched

SLOT_VALUE = files._value_class(0)
KEY = '["a", "a", {}, "help"]'


@pytest.fixture
def written(tmp_path):
    """The library's own file of values, with one value in it."""
    file = MmapedDict(str(tmp_path / "counter_0.db"))
    file.write_value(KEY, 3.5, 0.0)
    yield file
    file.close()


def test_the_librarys_file_has_what_ours_leans_on(written):
    names = inherited(AllocatedFile)
    names |= touched(SLOT_VALUE, "self._file")
    assert {"_positions", "_used", "_capacity", "_f", "_m"} <= names
    assert_has("prometheus-client", written, names, files)
    assert_has("prometheus-client", MmapedDict, touched(files, "MmapedDict"), files)


def test_the_librarys_file_is_laid_out_as_ours_writes_it(written):
    """The first four bytes count those in use; a value is a double at the position that the library keeps for it."""
    assert struct.unpack_from("i", written._m)[0] == written._used
    assert struct.unpack_from("d", written._m, written._positions[KEY])[0] == 3.5
    assert [(key, value) for key, value, *_ in MmapedDict.read_all_values_from_file(written._f.name)] == [(KEY, 3.5)]


def test_the_librarys_values_have_what_ours_leans_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    assert_has("prometheus-client", values, touched(files, "values"), files)
    value = values.MultiProcessValue(lambda: 7)("counter", "a", "a", (), (), "help")
    names = inherited(SLOT_VALUE)
    assert {"_file", "_key", "_value"} <= names
    assert_has("prometheus-client", value, names, files)
    assert [path.name for path in tmp_path.iterdir()] == ["counter_7.db"], "a file is named after its kind and process"
