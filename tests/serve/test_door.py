"""A server logs its own mistakes, not those of its clients."""

import pytest
from aiohttp.client_exceptions import ClientConnectionResetError
from aiohttp.http_exceptions import BadStatusLine

from agentload.serve.door import LOG


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (BadStatusLine("two"), False),
        (ClientConnectionResetError("Cannot write to closing transport"), False),
        (RuntimeError("ours"), True),
    ],
)
def test_a_client_that_sends_nonsense_or_leaves_is_no_mistake_of_the_server(
    error: Exception, *, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    LOG.error("Error handling request", exc_info=error)
    assert bool(caplog.records) == is_logged
