"""A server that lists no models and refuses every field that
OpenAI's API does not have can be measured all the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.endpoints.read import read_file
from agentload.errors import EndpointError
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import ClosedLoop, Load
from agentload.model.rows import CallRow, RunRow
from agentload.run.relay import prime
from agentload.store import journal
from agentload.store.places import journals
from tests.ask.refusing import TOKENS, refusing
from tests.live.scripted import Peer, serving
from tests.run.playing import Journalled, playing, trace

pytestmark = pytest.mark.loopback
ARMS = "arms: {{a: {{url: {url}, model: m, force_lengths: false, counting: usage}}}}"


async def test_its_calls_are_ok_and_that_nobody_listed_the_model_is_a_caveat(
    tmp_path: Path,
) -> None:
    async with serving(refusing) as server:
        (tmp_path / "e.yaml").write_text(ARMS.format(url=server.url))
        endpoints = read_file(tmp_path / "e.yaml")
        made = plan(
            trace(output=TOKENS),
            ["a"],
            run="r1",
            scheme=Scheme(pairs=1),
            load=Load(arrivals=ClosedLoop(sessions=2)),
        )
        database = tmp_path / "x.duckdb"
        await Journalled(playing(made, endpoints, database)).play()
    rows = [row for path in journals(database, "r1") for row in journal.read(path)]
    assert {
        (row.status, row.token_rule, row.output_tokens) for row in rows if isinstance(row, CallRow)
    } == {("ok", "usage", TOKENS)}
    (run,) = (row for row in rows if isinstance(row, RunRow))
    assert (
        "a: it lists no models: that it serves 'm' was not checked"
        in json.loads(run.options)["caveats"]
    )


async def test_a_server_that_refuses_every_call_ends_the_run_with_what_it_said(
    tmp_path: Path,
) -> None:
    async with serving(refusing) as server:
        endpoint = Endpoint(name="a", url=server.url, model="m", force_lengths=False)
        made = plan(
            trace(40),
            ["a"],
            run="r1",
            scheme=Scheme(pairs=1),
            load=Load(arrivals=ClosedLoop(sessions=2)),
        )
        with pytest.raises(
            EndpointError, match=r"a refused each of its first 20 calls: 422: .*return_token_ids"
        ) as caught:
            await Journalled(playing(made, [endpoint], tmp_path / "x.duckdb")).play()
    assert "--resume" in (caught.value.hint or "")


async def parserless(peer: Peer) -> None:
    """Answer as a vLLM without a tool parser."""
    if not peer.request.line.split()[1].endswith("/chat/completions"):
        await refusing(peer)
        return
    said = {
        "message": (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        ),
        "type": "BadRequestError",
    }
    body = json.dumps({"error": said}).encode()
    await peer.send(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "
        b"%d\r\n\r\n%b" % (len(body), body)
    )


async def test_a_server_without_a_tool_parser_ends_the_run_with_both_ways_out(
    tmp_path: Path,
) -> None:
    async with serving(parserless) as server:
        endpoint = Endpoint(name="a", url=server.url, model="m")
        made = plan(
            trace(40),
            ["a"],
            run="r1",
            scheme=Scheme(pairs=1),
            load=Load(arrivals=ClosedLoop(sessions=2)),
        )
        with pytest.raises(EndpointError, match="tool choice requires") as caught:
            await Journalled(playing(made, [endpoint], tmp_path / "x.duckdb")).play()
    assert (caught.value.hint or "").startswith(
        "`extra_body: {tool_choice: none}` in the arms file, or --enable-auto-tool-choice"
    )


async def test_a_refused_field_is_told_with_what_to_write_and_priming_it_says_so() -> None:
    async with serving(refusing) as server:
        took_ms = await prime(
            Endpoint(name="a", url=server.url, model="m", force_lengths=False, counting="usage")
        )
        why = await prime(Endpoint(name="a", url=server.url, model="m", force_lengths=False))
    assert isinstance(took_ms, float)
    assert took_ms > 0
    assert isinstance(why, str)
    assert why.startswith("422: detail: Unexpected fields in the request: {'return_token_ids'}")
    assert "`counting: usage`" in why


async def test_a_server_that_lists_no_models_must_be_told_which_to_ask_for() -> None:
    async with serving(refusing) as server:
        with pytest.raises(EndpointError, match="models answers 500") as caught:
            await identify(Endpoint(name="a", url=server.url))
    assert "--model MODEL" in (caught.value.hint or "")
