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
    """With the cluster at an address; without one that of RAY_ADDRESS, else one that runs here, else one begun now."""
    put_variable("RAY_USAGE_STATS_ENABLED", "0")  # of one that is begun here: it reports to nobody
    try:
        ray.init(
            address, include_dashboard=None if address else False, log_to_driver=False, logging_level=logging.WARNING
        )
    except ConnectionError as error:
        raise PortcullisError(f"no Ray cluster at {address}: {error}") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C; Ray's own handler writes a trace
    try:
        yield
    finally:
        ray.shutdown()
