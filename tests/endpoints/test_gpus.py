"""An exporter that will say nothing is known before anything is measured."""

from __future__ import annotations

import pytest

from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.gpus import silence
from agentload.endpoints.identity import Identity, identify
from tests.live.scripted import serving
from tests.run.playing import answering

PAGES = {
    "/gpus": 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 70\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 70\n',
    "/login": "<html><body>log in</body></html>",
    "/other": "vllm:num_requests_running 0\n",
}


@pytest.mark.loopback
async def test_why_an_exporter_says_nothing_of_the_arms_gpus() -> None:
    async with serving(answering(pages=lambda path, _: PAGES.get(path.partition("?")[0]))) as server:
        host = server.url.removesuffix("/v1")

        async def said(path: str, *own: str) -> str | None:
            why = await silence(Endpoint(name="a", url=server.url, gpu_metrics=f"{host}{path}", gpu_ids=own))
            return None if why is None else why.removeprefix(host)

        found = [await said("/gpus"), await said("/gpus", "1"), await said("/gpus", "7"), await said("/login?token=secret")]
        assert found == [None, None, "/gpus names GPU 0, 1, and gpu_ids says 7", "/login?*** is no metrics text"]
        assert (await said("/other"), await said("/nowhere")) == ("/other names no GPU", "/nowhere answers 404")
        assert await silence(Endpoint(name="a", url=server.url)) is None
        closed = Endpoint(name="a", url=server.url, gpu_metrics="http://127.0.0.1:9/metrics")
        met = await identify(closed)
    assert met.gpus_unseen == "http://127.0.0.1:9/metrics ClientConnectorError"
    caveat = f"a: {met.gpus_unseen}: what its GPUs draw, and whether they are slowed, is not seen"
    assert caveat in agreement([closed], {"a": met}).unseen
    assert caveat not in agreement([closed], {"a": Identity(models=("m",))}).unseen
