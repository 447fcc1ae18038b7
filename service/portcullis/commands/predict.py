"""`portcullis predict`: a table of answers."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from portcullis.client import Client, Refused
from portcullis.client.calls import Choice
from portcullis.commands import connection
from portcullis.commands.tables import number, print_json, print_table
from portcullis.schemas.answers import BatchEntry, ErrorDetail

REJECTED_STATUS = 3
HEADER = ("file", "label", "probability", "score", "p-value", "verdict")
EXAMPLES = """examples:
  portcullis predict photo.jpg                          ask the service on 127.0.0.1:8000
  portcullis predict *.jpg --operating-point accept99   reject less: at most 1 % of familiar images
  portcullis predict *.jpg --json | jq .answer.label    one JSON object a file
  portcullis predict upload.png --fail-on-reject        for scripts: status 3 if any image is rejected
  curl -s https://example.org/cat.jpg | portcullis predict -

status: 0; 1 if any file has an error; 3 with --fail-on-reject if any image is rejected.
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="classify images",
        description="Classify images with a running service and print what it says of each.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="image files; - reads one from standard input")
    connection.add_choice_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a file")
    parser.add_argument("--fail-on-reject", action="store_true", help="end with status 3 if any image is rejected")
    connection.add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with connection.client_of(arguments) as client:
        entries = list(_predict(client, arguments.files, connection.choice_of(arguments)))
    if arguments.json:
        for entry in entries:
            print_json(entry.model_dump())
    else:
        print_table(HEADER, map(_line, entries))
    if any(entry.error for entry in entries):
        return 1
    is_rejected = any(entry.answer and entry.answer.verdict == "reject" for entry in entries)
    return REJECTED_STATUS if is_rejected and arguments.fail_on_reject else 0


def _predict(client: Client, files: list[str], choice: Choice) -> Iterator[BatchEntry]:
    """One bad file costs its own line only; a service that cannot be reached ends the command."""
    for file in files:
        try:
            answer = client.predict(sys.stdin.buffer if file == "-" else file, **choice)
            yield BatchEntry(file=file, answer=answer)
        except OSError as error:
            detail = ErrorDetail(code="unreadable", message=error.strerror or str(error), request_id=None)
            yield BatchEntry(file=file, error=detail)
        except Refused as error:
            detail = ErrorDetail(code=error.code, message=error.message, request_id=error.request_id)
            yield BatchEntry(file=file, error=detail)


def _line(entry: BatchEntry) -> tuple[str, ...]:
    if entry.answer is None:
        message = f"{entry.error.code}: {entry.error.message}" if entry.error else ""
        return (entry.file, "-", "-", "-", "-", f"error ({message})")
    answer = entry.answer
    numbers = (number(answer.probability), number(answer.score), number(answer.p_value))
    verdict = answer.verdict if answer.reason is None else f"{answer.verdict}: {answer.reason}"
    return (entry.file, answer.label, *numbers, verdict)
