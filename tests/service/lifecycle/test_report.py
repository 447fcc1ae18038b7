"""What a worker says of how far it has come is written, and written again where that was lost."""

from portcullis.errors import StateNotWritten
from portcullis.lifecycle.report import Report
from portcullis.store.followers import Followed

FOLLOWED = Followed(revision=3)


class Files:
    """A file that can be replaced by another, and a disk that can be full."""

    def __init__(self):
        self.place, self.is_full = 1, False
        self.written = []

    def confirm(self, followed):
        if self.is_full:
            raise StateNotWritten("full")
        self.written.append((self.place, followed))

    def report(self):
        return Report(self.confirm, lambda: self.place)


async def test_what_was_written_is_not_written_again():
    files = Files()
    report = files.report()
    report.repeat_if_lost()
    report.say(FOLLOWED)
    await report.wait()
    report.repeat_if_lost()
    await report.wait()
    assert files.written == [(1, FOLLOWED)]


async def test_what_a_full_disk_did_not_take_is_said_again():
    files = Files()
    report = files.report()
    files.is_full = True
    report.say(FOLLOWED)
    await report.wait()
    files.is_full = False
    report.repeat_if_lost()
    await report.wait()
    assert files.written == [(1, FOLLOWED)]


async def test_what_went_with_a_damaged_file_is_said_in_the_next():
    files = Files()
    report = files.report()
    report.say(FOLLOWED)
    await report.wait()
    files.place = 2
    report.repeat_if_lost()
    await report.wait()
    assert files.written == [(1, FOLLOWED), (2, FOLLOWED)]
