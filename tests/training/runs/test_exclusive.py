"""Of several processes one works at a time."""

import threading
from pathlib import Path

import pytest

from portcullis_training.data import named
from portcullis_training.errors import DataError
from portcullis_training.runs.exclusive import alone


def overlapping(work, num_workers: int = 2, patience_seconds: float = 0.5) -> bool:
    """Whether two workers are ever inside at once; the first one there gives the second so long to come."""
    is_inside, met = threading.Semaphore(1), threading.Event()

    def enter() -> None:
        if not is_inside.acquire(blocking=False):
            met.set()
            return
        met.wait(patience_seconds)
        is_inside.release()

    threads = [threading.Thread(target=work, args=(enter,)) for _ in range(num_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return met.is_set()


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    def locked(enter) -> None:
        with alone(tmp_path / "new" / "thing"):
            enter()

    assert overlapping(lambda enter: enter(), patience_seconds=60)  # as long as a machine may pause
    assert not overlapping(locked)


def test_a_named_set_is_downloaded_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTCULLIS_DATA", str(tmp_path))

    def read(enter) -> None:
        def download(name: str, *, is_train: bool) -> None:
            """Stands for the network, which tests do not have."""
            enter()
            raise DataError("no network")

        monkeypatch.setattr(named, "_open", download)
        with pytest.raises(DataError, match="no network"):
            named.read_named("mnist")

    assert not overlapping(read)
