"""Our own HTTP server around what a process serves, and the sockets that it listens on."""

import socket

from portcullis.errors import SettingsError
from portcullis.http.protocol import GuardedProtocol
from portcullis.http.server import Server, configure
from portcullis.http.tls import certificate_of
from portcullis.processes.serving import Serving
from portcullis.settings import Settings

BACKLOG = 2048


def server_of(serving: Serving, settings: Settings) -> Server:
    """The server of this process; there is one, for its limits are those of the protocol's class."""
    GuardedProtocol.header_timeout_seconds = settings.header_timeout_seconds
    GuardedProtocol.body_timeout_seconds = settings.body_timeout_seconds
    app = serving.application()
    GuardedProtocol.turn_away, GuardedProtocol.cross_origin = app.turn_away, app.cross_origin
    return Server(
        configure(app, settings.keep_alive_seconds, settings.grace_seconds),
        settings.max_connections,
        settings.drain_seconds,
        serving.drain,
        certificate_of(settings.tls_certificate_file, settings.tls_key_file),
    )


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
