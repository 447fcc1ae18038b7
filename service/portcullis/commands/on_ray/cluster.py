"""The way to a Ray cluster, or one of our own for as long as it is needed."""

import contextlib
import logging
import signal
from collections.abc import Iterator

import ray

from portcullis.environment import put_variable
from portcullis.errors import PortcullisError


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """With the cluster at an address; without one, whatever else runs on this machine, with one begun for it."""
    put_variable("RAY_USAGE_STATS_ENABLED", "0")  # of one that is begun here: it reports to nobody
    try:
        ray.init(
            address, include_dashboard=None if address else False, log_to_driver=False, logging_level=logging.WARNING
        )
    except (ConnectionError, ValueError) as error:  # nobody is there, or it is no address
        raise PortcullisError(f"no Ray cluster at {address}: {error}") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C; Ray's own handler writes a trace
    try:
        yield
    finally:
        ray.shutdown()
