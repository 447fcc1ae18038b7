"""What the base install lacks, said in one line: the client comes alone, the server's packages with an extra."""

from collections.abc import Iterator
from contextlib import contextmanager

from portcullis.errors import PortcullisError


@contextmanager
def server_packages(user: str) -> Iterator[None]:
    """Around the imports of something that needs more than the client."""
    try:
        yield
    except ModuleNotFoundError as error:
        _raise_ours(error)
        raise PortcullisError(
            f"{user} needs more than the client ({error.name} is missing): pip install 'portcullis[cpu]', "
            "or 'portcullis[gpu]' on a machine with an NVIDIA GPU"
        ) from None


@contextmanager
def ray_packages(user: str) -> Iterator[None]:
    """Around the imports of something that runs on Ray; the server's packages come first."""
    try:
        yield
    except ModuleNotFoundError as error:
        _raise_ours(error)
        raise PortcullisError(
            f"{user} needs Ray ({error.name} is missing): pip install 'portcullis[cpu,fleet,ray]'"
        ) from None


def _raise_ours(error: ModuleNotFoundError) -> None:
    if (error.name or "portcullis").split(".")[0] == "portcullis":  # our own mistake, not a missing package
        raise error
