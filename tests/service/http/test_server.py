"""The server's own settings, as uvicorn gets them."""

from portcullis.http.server import configure


async def app(scope, receive, send):
    """Never called here."""


def test_no_time_is_cut_to_whole_seconds():
    """uvicorn asks for integers, and cut so a keep-alive of half a second would be none, a grace of 0.9 s no grace."""
    config = configure(app, keep_alive_seconds=0.5, grace_seconds=0.9)
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (0.5, 0.9)
