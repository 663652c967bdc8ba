"""A certificate that expires while a run is on is waited for like
a server that died, and named where nobody renews it.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.run.barrier import wait_for
from tests.live.certificates import made
from tests.live.scripted import serving
from tests.run.playing import answering

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


async def test_an_expired_certificate_is_waited_for_until_it_is_renewed(tmp_path: Path) -> None:
    certificates = made(tmp_path)
    server_side = certificates.server_context(name="expired")

    def renew() -> None:
        server_side.load_cert_chain(certificates.certificate("server"), certificates.key("server"))

    async with serving(answering(), tls=server_side) as server:
        endpoint = Endpoint(name="a", url=server.url, ca_file=str(certificates.authority))
        with pytest.raises(EndpointError, match="certificate has expired") as caught:
            await wait_for(
                endpoint, patience_s=0.0, goes_on="agentload resumes", is_stopping=lambda: False
            )
        asyncio.get_running_loop().call_later(0.1, renew)
        back = await wait_for(endpoint, patience_s=300.0, goes_on="", is_stopping=lambda: False)
    assert caught.value.hint == (
        "renew it on the server; or is the clock of this machine wrong? Then: agentload resumes"
    )
    assert back is not None
