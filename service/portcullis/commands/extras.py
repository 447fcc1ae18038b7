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
        if (error.name or "portcullis").split(".")[0] == "portcullis":  # our own mistake, not a missing package
            raise
        raise PortcullisError(
            f"{user} needs more than the client ({error.name} is missing): pip install 'portcullis[cpu]', "
            "or 'portcullis[gpu]' on a machine with an NVIDIA GPU"
        ) from None
