"""The protocol and the server lean on uvicorn's own parts, which may change in any release: here that would show."""

import asyncio
import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from portcullis.http.connection import Connection
from portcullis.http.protocol import GuardedProtocol
from portcullis.http.server import Server
from tests.service.internals import assert_has, inherited, touched

REQUEST = b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"
CALLED_BY_UVICORN = [
    *((GuardedProtocol, name) for name in ("connection_made", "connection_lost", "data_received", "shutdown")),
    *((GuardedProtocol, name) for name in ("on_message_begin", "on_headers_complete", "on_body")),
    *((GuardedProtocol, name) for name in ("on_message_complete", "on_response_complete", "send_400_response")),
    *((Server, name) for name in ("capture_signals", "on_tick", "shutdown", "startup")),
]


class Memory(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""

    def write(self, data):
        self.written += data

    def close(self):
        pass

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def app(scope, receive, send):
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.fixture
async def connection():
    """uvicorn's own protocol in the middle of a request: its headers are through, its body is not."""
    config = uvicorn.Config(app, http="httptools", lifespan="off", log_config=None)
    config.load()
    state = uvicorn.server.ServerState()
    made = HttpToolsProtocol(config=config, server_state=state, app_state={})
    made.connection_made(Memory())
    made.data_received(REQUEST)
    yield made
    made.connection_lost(None)
    await asyncio.gather(*state.tasks)


def test_uvicorns_protocol_has_what_ours_leans_on(connection):
    names = inherited(GuardedProtocol)
    assert {"cycle", "flow", "parser", "scope", "server_state"} <= names
    assert_has("uvicorn", connection, names, GuardedProtocol)
    assert_has("uvicorn", connection.flow, touched(GuardedProtocol, "self.flow"), GuardedProtocol)


def test_uvicorns_cycle_has_what_ours_leans_on(connection):
    names = touched(GuardedProtocol, "self.cycle") | touched(Connection, "cycle", "self._cycle")
    assert {"keep_alive", "message_event", "on_response", "response_started"} <= names
    assert_has("uvicorn", connection.cycle, names, Connection)
    assert STATUS_LINE[503].startswith(b"HTTP/1.1 503 ")


def test_uvicorns_server_has_what_ours_leans_on(connection):
    made = uvicorn.Server(connection.config)
    made.lifespan = connection.config.lifespan_class(connection.config)
    names = inherited(Server) - {"servers"}  # set by `startup`, which ours replaces, and read by `shutdown`
    assert {"config", "lifespan", "server_state", "should_exit", "started"} <= names
    assert_has("uvicorn", made, names, Server)
    assert_has("uvicorn", made.server_state, touched(Server, "self.server_state"), Server)
    assert_has("uvicorn", made.lifespan, touched(Server, "self.lifespan"), Server)
    assert "self.servers" in inspect.getsource(uvicorn.Server.shutdown)


@pytest.mark.parametrize(("ours", "name"), CALLED_BY_UVICORN)
def test_what_ours_replaces_is_still_there_to_be_called(ours, name):
    library_class = ours.__mro__[1]
    assert_has("uvicorn", library_class, {name}, ours)
    parameters = [list(inspect.signature(getattr(kind, name)).parameters) for kind in (ours, library_class)]
    assert parameters[0] == parameters[1], f"uvicorn calls {library_class.__qualname__}.{name} in another way"


@pytest.mark.parametrize("ours", [GuardedProtocol, Server])
def test_everything_that_ours_replaces_is_listed_here(ours):
    library_class = ours.__mro__[1]
    replaced = {name for name, thing in vars(ours).items() if inspect.isfunction(thing) and name != "__init__"}
    assert {name for name in replaced if hasattr(library_class, name)} <= {name for _, name in CALLED_BY_UVICORN}
