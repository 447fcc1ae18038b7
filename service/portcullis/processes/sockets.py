"""The socket that an instance listens on: held by the supervisor, which answers nobody and needs no server."""

import socket

from portcullis.errors import SettingsError

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """The socket that all workers of an instance share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener


def address_of(listener: socket.socket, is_secure: bool) -> str:
    """Where the service is found, as a client writes it."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
