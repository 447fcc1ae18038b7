"""Our own HTTP server around what a process serves."""

from portcullis.http.protocol import GuardedProtocol
from portcullis.http.server import Server, configure
from portcullis.http.tls import certificate_of
from portcullis.processes.serving import Serving
from portcullis.settings import Settings


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
