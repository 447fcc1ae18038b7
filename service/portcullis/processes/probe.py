"""A trial on one device, in a process of its own: opens and tests bundles, says in one line what came of it, ends.

It reads its task from standard input and answers on what was its standard output. Libraries print there too, so the
descriptor is taken away from them first.
"""

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from portcullis.bundle.engine import start
from portcullis.bundle.providers import EngineOptions, order
from portcullis.bundle.session import has_gpu_build, reason_of
from portcullis.bundle.signatures import Trust
from portcullis.errors import PortcullisError
from portcullis.processes.placement import OPTIONS


def main() -> None:
    """Entry of the process."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.WARNING)  # the supervisor tells it once, not each device
    task = json.loads(sys.stdin.readline())
    with answer:
        options, bundles = OPTIONS.validate_python(task["options"]), [Path(path) for path in task["bundles"]]
        json.dump(report(options, bundles, Trust(task["trusted_keys"])), answer)


def report(options: EngineOptions, bundles: Sequence[Path], trust: Trust) -> dict[str, object]:
    """The provider on which all bundles start, the first in the order asked for, or why there is none."""
    left = order(options, has_gpu_build())
    refusals: list[str] = []
    try:
        for path in bundles:
            engine = start(trust.load(path), dataclasses.replace(options, providers=left))
            left, refusals = left[left.index(engine.provider) :], [*refusals, *engine.refusals]
            engine.close()
    except PortcullisError as error:
        return {"error": reason_of(error)}
    return {"provider": left[0], "refusals": refusals}


if __name__ == "__main__":
    main()
