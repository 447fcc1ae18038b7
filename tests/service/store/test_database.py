"""What both engines promise of transactions, tables and faults."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from portcullis.errors import DatabaseAway, DatabaseDamaged, SettingsError, StateNotWritten
from portcullis.processes.stores import open_local
from portcullis.store import schema
from portcullis.store.database import put
from portcullis.store.postgresql import Postgres
from portcullis.store.schema import STEPS, migrate
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import StateStore
from tests import postgres, sabotage


def cursors(database):
    return {row["file"]: row["next_sequence"] for row in database.read("SELECT * FROM rings")}


def test_a_transaction_is_made_whole_or_not_at_all(database):
    with pytest.raises(ZeroDivisionError), database.writing() as session:
        put(session, "rings", "file", file="a", next_sequence=1)
        raise ZeroDivisionError
    assert cursors(database) == {}
    with database.writing() as session:
        put(session, "rings", "file", file="a", next_sequence=1)
        put(session, "rings", "file", file="a", next_sequence=2)
    assert cursors(database) == {"a": 2}


def test_a_line_can_be_used_again_after_a_transaction_that_failed(database):
    with database.line() as line:
        with pytest.raises(ZeroDivisionError), line.writing():
            raise ZeroDivisionError
        with line.writing(is_durable=False) as session:
            put(session, "rings", "file", file="ünïcode %s :x", next_sequence=2**60)
    assert cursors(database) == {"ünïcode %s :x": 2**60}


def test_tables_are_made_once_however_many_begin_at_once(database):
    threads = [threading.Thread(target=migrate, args=(database,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["number"] for row in database.read("SELECT * FROM schema_steps")] == list(range(1, len(STEPS) + 1))


def test_a_step_that_fails_is_not_taken_by_halves_and_a_later_one_is_added(database, monkeypatch):
    with pytest.raises(DatabaseAway):
        monkeypatch.setattr(schema, "STEPS", (*STEPS, ("CREATE TABLE later (x INTEGER)", "NONSENSE")))
        migrate(database)
    monkeypatch.setattr(schema, "STEPS", (*STEPS, ("CREATE TABLE later (x INTEGER)",)))
    migrate(database)
    assert database.read("SELECT * FROM later") == []


def test_an_older_service_goes_on_with_a_newer_database(database, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*STEPS, ("CREATE TABLE later (x INTEGER)",)))
        migrate(database)
    migrate(database)
    assert "newer service" in caplog.text


def test_a_process_that_is_killed_in_a_transaction_leaves_no_trace_and_no_lock(local):
    program = f"""
import os; from pathlib import Path
from portcullis.store.sqlite import Sqlite; from portcullis.store.database import put
with Sqlite(Path({str(local.file)!r})).writing() as session:
    put(session, "rings", "file", file="a", next_sequence=1)
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert cursors(local) == {}
    with local.writing() as session:
        put(session, "rings", "file", file="b", next_sequence=1)


# -- SQLite ----------------------------------------------------------------------------------------------------------


def test_a_stamp_changes_with_what_others_commit_and_with_nothing_else(local):
    first = local.stamp()
    assert local.stamp() == first
    other = Sqlite(local.file)
    with other.writing() as session:
        put(session, "rings", "file", file="a", next_sequence=1)
    second = local.stamp()
    assert second != first == (second[0], second[1] - 1)
    cursors(other)
    assert local.stamp() == second


@pytest.mark.parametrize("damage", ["overwritten", "cut short", "a bit of the middle"])
def test_a_damaged_file_is_found_at_the_start_and_moved_aside(local, damage):
    with local.writing() as session:
        for number in range(500):
            put(session, "rings", "file", file=f"{number:0200}", next_sequence=number)
    local.close()
    content = bytearray(local.file.read_bytes())
    if damage == "overwritten":
        content[:] = b"not a database" * 100
    elif damage == "cut short":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2 : len(content) // 2 + 4096] = os.urandom(4096)
    local.file.write_bytes(content)
    assert open_local(local)
    assert cursors(local) == {}
    [aside] = local.file.parent.glob("store.db.damaged-*")
    assert aside.read_bytes() == bytes(content)


def test_a_file_with_a_state_that_nobody_understands_is_moved_aside_at_the_start(local):
    """As after a step back to an older service: it starts with what its settings say, and tells of it."""
    with local.writing() as session:
        put(session, "state", "one", one=1, revision=7, body='{"of": "a newer service"}')
    assert open_local(local)
    assert StateStore(local).read() is None
    assert len(list(local.file.parent.glob("store.db.damaged-*[0-9]"))) == 1
    assert not open_local(local)


def test_a_file_that_was_replaced_is_another_stamp_and_is_read_from_then_on(local):
    first = local.stamp()
    local.set_aside()
    with pytest.raises(DatabaseAway):
        local.stamp()
    local.create()
    migrate(local)
    assert local.stamp() != first
    assert cursors(local) == {}


def test_a_file_without_tables_is_damaged_and_is_not_made_by_asking(tmp_path):
    database = Sqlite(tmp_path / "x.db")
    with pytest.raises(DatabaseAway):
        cursors(database)
    assert not database.file.exists()
    sqlite3.connect(database.file).close()
    with pytest.raises(DatabaseDamaged, match="no such table"):
        cursors(database)


def test_a_full_disk_is_said_to_be_full_and_takes_changes_once_there_is_space(tmp_path):
    try:
        with sabotage.small_disk(tmp_path / "small", megabytes=1) as disk:
            database = Sqlite(disk / "x.db")
            open_local(database)
            database.stamp()
            sabotage.fill(disk / "filler")
            with pytest.raises(StateNotWritten), database.writing() as session:
                for number in range(1000):
                    put(session, "rings", "file", file=f"{number:0500}", next_sequence=1)
            assert cursors(database) == {}
            (disk / "filler").unlink()
            with database.writing() as session:
                put(session, "rings", "file", file="a", next_sequence=1)
            assert cursors(database) == {"a": 1}
            database.close()
    except PermissionError as error:
        pytest.skip(str(error))


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_soon():
    """A PostgreSQL on a small disk, which is another user's."""
    try:
        with tempfile.TemporaryDirectory() as home:
            Path(home).chmod(0o711)
            with sabotage.small_disk(Path(home) / "small", megabytes=160) as disk, postgres.cluster(disk) as cluster:
                yield cluster, disk
    except (FileNotFoundError, PermissionError) as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_so_is_a_full_disk_of_postgresql(full_soon):
    cluster, disk = full_soon
    database = Postgres(f"{cluster.new_database()}?connect_timeout=60&options=-c%20statement_timeout%3D60000")
    migrate(database)
    sabotage.fill(disk / "filler")
    with pytest.raises(StateNotWritten, match="nothing was changed"):
        while True:  # until what the server had taken in advance is used up too
            with database.writing() as session:
                for number in range(1000):
                    put(session, "rings", "file", file=f"{number:0500}", next_sequence=1)
    (disk / "filler").unlink()
    with database.writing() as session:
        put(session, "rings", "file", file="a", next_sequence=1)
    assert cursors(database)["a"] == 1


def test_an_address_that_is_none_is_a_setting_to_mend():
    with pytest.raises(SettingsError, match="no address"):
        Postgres("nonsense")


def test_a_database_that_is_not_there_is_away_and_no_host_is_named_to_a_client(cluster):
    with pytest.raises(DatabaseAway) as caught:
        Postgres(cluster.url("nobody")).read("SELECT 1")
    assert str(cluster.port) not in str(caught.value) and "nobody" in str(caught.value.__cause__)


def test_who_listens_is_woken_by_what_is_committed_and_by_nothing_else(cluster):
    database = Postgres(cluster.new_database())
    with database.line() as line:
        line.listen()
        with pytest.raises(ZeroDivisionError), database.writing() as session:
            session.notify()
            raise ZeroDivisionError
        assert not line.wait(0.01)
        with database.writing() as session:
            session.notify()
        assert line.wait(60)
        assert not line.wait(0)
