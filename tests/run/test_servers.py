from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import ClosedLoop, Load
from agentload.model.trace import Segment
from agentload.run.servers import speech
from agentload.study.parts import Request
from tests.live.scripted import serving
from tests.run.playing import Journalled, answering, playing, trace


def test_what_a_study_says_of_requests_is_in_their_body_and_an_arm_says_it_louder() -> None:
    endpoint = Endpoint(
        name="a", url="http://127.0.0.1:1/v1", extra_body={"temperature": 0.2, "top_k": 5}
    )
    assert speech(endpoint, "m", Request(temperature=0.7), with_tools={}).extra == {
        "temperature": 0.2,
        "top_k": 5,
    }
    assert speech(
        Endpoint(name="a", url="http://127.0.0.1:1/v1"),
        "m",
        Request(temperature=0.7),
        with_tools={},
    ).extra == {"temperature": 0.7}
    assert (
        speech(Endpoint(name="a", url="http://127.0.0.1:1/v1"), "m", Request(), with_tools={}).extra
        == {}
    )


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("pages", "own", "choice"),
    [
        ({"/version": '{"version": "0.32.0"}'}, {}, "none"),
        ({"/version": '{"version": "0.32.0"}'}, {"tool_choice": "auto"}, "auto"),
        ({}, {}, None),  # it may be a server that leaves tools out of the prompt then
    ],
)
async def test_a_vllm_is_sent_tools_that_no_parser_must_read(
    tmp_path: Path, pages: dict[str, str], own: dict[str, str], choice: str | None
) -> None:
    made = trace(2)
    (first, second) = made.sessions
    tools = (Segment(role="tools", tokens=60, key="t"), *first.turns[0].add)
    made = replace(
        made, sessions=(replace(first, turns=(replace(first.turns[0], add=tools),)), second)
    )
    async with serving(answering(pages=lambda path, _: pages.get(path))) as server:
        endpoint = Endpoint(name="a", url=server.url, model="m", extra_body=own)
        planned = plan(
            made,
            ["a"],
            run="r1",
            scheme=Scheme(pairs=1),
            load=Load(arrivals=ClosedLoop(sessions=2)),
        )
        await Journalled(playing(planned, [endpoint], tmp_path / "x.duckdb")).play()
        bodies: list[dict[str, Any]] = [
            json.loads(each.body)
            for each in server.requests
            if each.body and b'"key"' not in each.body
        ]
    asked = [body for body in bodies if "messages" in body and "max_tokens" in body]
    assert {body.get("tool_choice") for body in asked if "tools" in body} == {choice}
    assert {body.get("tool_choice") for body in asked if "tools" not in body} == {
        own.get("tool_choice")
    }
