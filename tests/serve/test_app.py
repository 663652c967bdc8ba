import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI, AuthenticationError

from agentload.exposition.scrape import parse
from agentload.model.profile import EncoderTime, Logprobs
from agentload.prompts import images
from agentload.serve.server import ServedArm, ServerOptions
from tests.serve.arms import arm
from tests.serve.recorded_lines import Json, event, text
from tests.serve.serving import served

pytestmark = pytest.mark.loopback

HELLO: list[Any] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "what is the news today"},
]
LENGTH = 8192


@pytest.fixture
async def running() -> AsyncIterator[ServedArm]:
    async with served(arm(step_ms=0.5)) as server:
        yield server


@pytest.fixture
async def http(running: ServedArm) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(running.url.removesuffix("/v1")) as session:
        yield session


def client(running: ServedArm, key: str = "any") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=running.url, api_key=key, max_retries=0)


@pytest.fixture
async def openai(running: ServedArm) -> AsyncIterator[AsyncOpenAI]:
    async with client(running) as openai:
        yield openai


async def test_the_openai_client_lists_the_model_with_its_length(openai: AsyncOpenAI) -> None:
    listing = await openai.models.list()
    assert [(model.id, model.model_dump()["max_model_len"]) for model in listing.data] == [
        ("tiny", LENGTH)
    ]


async def test_the_openai_client_gets_the_same_chat_answer_whole_and_streamed(
    openai: AsyncOpenAI,
) -> None:
    whole = await openai.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=9, extra_body={"ignore_eos": True}
    )
    stream = await openai.chat.completions.create(
        model="tiny",
        messages=HELLO,
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    said = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert said == whole.choices[0].message.content
    assert len(said.split()) == 9
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (7, 9)
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 9)


async def test_the_openai_client_gets_completions_of_text_and_of_token_ids(
    openai: AsyncOpenAI,
) -> None:
    of_text = await openai.completions.create(
        model="tiny", prompt="one two three", max_tokens=4, extra_body={"ignore_eos": True}
    )
    assert of_text.usage is not None
    assert (
        of_text.usage.prompt_tokens,
        of_text.usage.completion_tokens,
        len(of_text.choices[0].text.split()),
    ) == (3, 4, 4)
    stream = await openai.completions.create(
        model="tiny",
        prompt=[1, 2, 3, 4],
        max_tokens=4,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    assert len("".join([chunk.choices[0].text async for chunk in stream]).split()) == 4


def posted(fields: Json, headers: str = "") -> bytes:
    """Return a request for a chat completion as bytes."""
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{headers}Content-Type: "
        f"application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def test_the_openai_client_gets_a_tool_call_whole_and_streamed(openai: AsyncOpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools: list[Any] = [
        {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    ]
    asked: list[Any] = [{"role": "user", "content": "The city is Ulm. Use the weather tool."}]
    whole = await openai.chat.completions.create(model="tiny", messages=asked, tools=tools)
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.choices[0].message.tool_calls is not None
    ((call),) = whole.choices[0].message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Ulm"})
    stream = await openai.chat.completions.create(
        model="tiny", messages=asked, tools=tools, stream=True
    )
    deltas = [
        delta
        async for chunk in stream
        for choice in chunk.choices
        for delta in choice.delta.tool_calls or ()
    ]
    assert (
        "".join(delta.function.arguments or "" for delta in deltas if delta.function)
        == call.function.arguments
    )


async def test_thinking_comes_before_the_answer_as_reasoning(openai: AsyncOpenAI) -> None:
    extra = {"ignore_eos": True, "thinking_token_budget": 4}
    whole = await openai.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=10, extra_body=extra
    )
    message = whole.choices[0].message.model_dump()
    assert [len(message[kind].split()) for kind in ("reasoning", "content")] == [4, 6]
    assert whole.usage is not None
    assert whole.usage.completion_tokens_details is not None
    assert whole.usage.completion_tokens_details.reasoning_tokens == 4


async def test_an_image_costs_the_tokens_of_its_size(openai: AsyncOpenAI) -> None:
    picture = {"type": "image_url", "image_url": {"url": images.data_url(1, "picture", (280, 140))}}
    asked: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "what is this"}, picture]}
    ]
    whole = await openai.chat.completions.create(model="tiny", messages=asked, max_tokens=1)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 3 + 50


async def test_an_image_is_encoded_before_the_first_token_and_only_once() -> None:
    seeing = replace(arm(step_ms=0.5), encoder=EncoderTime(ms_per_token=6.0))
    picture = {"type": "image_url", "image_url": {"url": images.data_url(1, "picture", (280, 140))}}

    async def seconds(asking: AsyncOpenAI, question: str) -> float:
        asked: list[Any] = [
            {"role": "user", "content": [{"type": "text", "text": question}, picture]}
        ]
        begin = asyncio.get_running_loop().time()
        await asking.chat.completions.create(model="tiny", messages=asked, max_tokens=1)
        return asyncio.get_running_loop().time() - begin

    async with served(seeing) as server, client(server) as asking:
        first = await seconds(asking, "what is this")
        again = await seconds(asking, "look closer, what is it")
    assert first >= 0.3  # 50 tokens
    assert again < first


async def test_a_request_id_is_echoed_and_becomes_the_id_of_the_answer(
    http: aiohttp.ClientSession,
) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    async with http.post(
        "/v1/chat/completions", json=body, headers={"X-Request-Id": "run-7.3"}
    ) as answer:
        assert answer.headers["X-Request-Id"] == "run-7.3"
        assert (await answer.json())["id"] == "chatcmpl-run-7.3"


async def test_a_stream_has_the_head_of_a_real_server(running: ServedArm) -> None:
    port = int(running.url.split(":")[2].removesuffix("/v1"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"messages": HELLO, "max_tokens": 2, "stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
        b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    writer.write(body)
    status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    assert status == "HTTP/1.1 200 OK"
    names = [field.split(": ")[0].lower() for field in fields]
    assert names == ["date", "server", "content-type", "vary", "transfer-encoding"]
    assert fields[2] == "content-type: text/event-stream; charset=utf-8"
    rest = await reader.readuntil(b"0\r\n\r\n")
    assert rest.endswith(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()


async def refused(
    http: aiohttp.ClientSession, body: Json, *, status: int, path: str = "/v1/chat/completions"
) -> Json:
    kind = (
        {"json": body}
        if isinstance(body, dict)
        else {"data": body, "headers": {"Content-Type": "application/json"}}
    )
    async with http.post(path, **kind) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        return await answer.json()


async def test_errors_come_as_recorded_even_where_a_stream_was_asked_for(
    http: aiohttp.ClientSession,
) -> None:
    model = json.loads(text("error_model.json").replace("tiny-auto", "tiny"))
    assert await refused(http, {"messages": HELLO, "model": "nope"}, status=404) == model
    long = {"messages": [{"role": "user", "content": "word " * 9000}], "stream": True}
    assert await refused(http, long, status=400) == json.loads(text("error_overlong_chat.json"))
    assert await refused(http, b'{"model":,}', status=400) == json.loads(text("error_badjson.json"))
    assert await refused(http, {"messages": HELLO, "max_tokens": -1}, status=400) == json.loads(
        text("error_badparam.json")
    )
    assert await refused(http, {"messages": []}, status=400) != {}
    assert await refused(http, {}, path="/v1/nothing", status=404) == {
        "error": {"message": "Not Found", "type": "Not Found", "param": None, "code": 404}
    }


async def test_a_body_that_is_not_declared_as_json_is_refused(http: aiohttp.ClientSession) -> None:
    async with http.post(
        "/v1/completions", data=b'{"prompt":"a"}', headers={"Content-Type": "text/plain"}
    ) as answer:
        assert answer.status == 400
        assert "Unsupported Media Type" in (await answer.json())["error"]["message"]


async def test_a_full_queue_refuses_with_503_and_says_so_in_its_metrics() -> None:
    async with (
        served(arm(step_ms=20, max_waiting=1, max_num_seqs=1)) as running,
        aiohttp.ClientSession(running.url.removesuffix("/v1")) as http,
    ):
        body = {"messages": HELLO, "max_tokens": 5_000, "ignore_eos": True}  # 100 s: it stays
        first = [
            asyncio.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(2)
        ]
        for _ in range(6_000):
            found = await gauges(http)
            if found["waiting"] == 1:
                break
            await asyncio.sleep(0.01)
        assert (found["running"], found["rejections"]) == (1, 0)
        assert await refused(http, body, status=503) == json.loads(text("error_queue_full.json"))
        found = await gauges(http)
        assert (found["running"], found["waiting"], found["rejections"]) == (1, 1, 1)
        for task in first:
            task.cancel()


async def test_a_client_that_leaves_frees_its_place_in_the_batch() -> None:
    async with (
        served(arm(step_ms=20)) as running,
        aiohttp.ClientSession(running.url.removesuffix("/v1")) as http,
    ):
        body = {"messages": HELLO, "max_tokens": 5_000, "stream": True, "ignore_eos": True}  # 100 s
        async with http.post("/v1/chat/completions", json=body) as answer:
            await answer.content.readline()
            assert await load(http) == 1
            answer.close()
        async with asyncio.timeout(60):
            while await load(http):  # noqa: ASYNC110  # a server's gauge has no event
                await asyncio.sleep(0.01)


async def load(http: aiohttp.ClientSession) -> float:
    return (await gauges(http))["running"]


async def gauges(http: aiohttp.ClientSession) -> Mapping[str, float]:
    async with http.get("/metrics") as answer:
        return parse(await answer.text()).values


async def test_a_reader_that_stops_reading_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = tmp_path / "truth.jsonl"

    def listening(address: tuple[str, int], **options: Any) -> socket.socket:
        listener = create_server(address, **options)
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16
        )  # its connections inherit it
        return listener

    create_server = socket.create_server
    monkeypatch.setattr(socket, "create_server", listening)
    async with (
        served(arm(step_ms=20), ServerOptions(truth=truth)) as running,
        aiohttp.ClientSession(running.url + "/") as http,
    ):
        port = int(running.url.split(":")[2].removesuffix("/v1"))
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.setblocking(False)
        await asyncio.get_running_loop().sock_connect(lazy, ("127.0.0.1", port))
        # 20 alternatives a token make it 3 kB: ten times what
        # the kernel takes for a reader that does not read.
        many = {
            "messages": HELLO,
            "max_tokens": 400,
            "stream": True,
            "ignore_eos": True,
            "logprobs": True,
            "top_logprobs": 20,
        }
        await asyncio.get_running_loop().sock_sendall(lazy, posted(many, "X-Request-Id: lazy\r\n"))
        await asyncio.sleep(1.5)
        brisk = {"messages": HELLO, "max_tokens": 50, "stream": True, "ignore_eos": True}
        async with http.post(
            "chat/completions", json=brisk, headers={"X-Request-Id": "brisk"}
        ) as answer:
            events = [line async for line in answer.content if line.startswith(b"data: {")]
        lazy.close()
    logs = {log["request_id"]: log for log in map(json.loads, truth.read_text().splitlines()[1:])}
    assert sum(len(event(line)["choices"][0]["delta"]["content"].split()) for line in events) == 50
    assert logs["brisk"]["behind"] == 0
    # One write was not taken whole; from then on nothing was written, and the tokens waited.
    assert logs["lazy"]["behind"] == 1
    assert sum(logs["lazy"]["tokens"]) < 400
    assert logs["lazy"]["end"] == "left"


async def test_the_truth_log_says_when_each_chunk_was_planned_and_written(tmp_path: Path) -> None:
    async with (
        served(arm(step_ms=2), ServerOptions(truth=tmp_path / "truth.jsonl")) as running,
        client(running) as openai,
    ):
        stream = await openai.chat.completions.create(
            model="tiny",
            messages=HELLO,
            max_tokens=20,
            stream=True,
            extra_body={"ignore_eos": True},
            extra_headers={"X-Request-Id": "r1"},
        )
        async for _ in stream:
            pass
    (log,) = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines()[1:])
    assert (log["request_id"], log["prompt_tokens"], log["output_tokens"], log["end"]) == (
        "r1",
        7,
        20,
        "done",
    )
    assert sum(log["tokens"]) == 20
    assert log["arrived_ns"] == log["submitted_ns"]
    for planned, before, after in zip(
        log["planned_ns"], log["before_ns"], log["after_ns"], strict=True
    ):
        assert planned <= before <= after
    assert log["after_ns"][-1] <= log["ended_ns"]


async def test_a_key_guards_the_api_and_nothing_else() -> None:
    async with (
        served(arm(), ServerOptions(api_key="secret")) as running,
        aiohttp.ClientSession(running.url.removesuffix("/v1")) as http,
    ):
        async with client(running, "wrong") as openai:
            with pytest.raises(AuthenticationError):
                await openai.models.list()
        async with client(running, "secret") as openai:
            assert (await openai.models.list()).data[0].id == "tiny"
        for path in ("/health", "/version", "/metrics"):
            async with http.get(path) as answer:
                assert answer.status == 200


async def test_a_prompt_is_cached_in_whole_blocks_until_the_cache_is_reset(
    http: aiohttp.ClientSession,
) -> None:
    async def cached(body: Json) -> int:
        async with http.post("/v1/chat/completions", json=body) as answer:
            return int((await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"])

    ask = {
        "messages": [{"role": "user", "content": " ".join(f"w{i}" for i in range(100))}],
        "max_tokens": 1,
    }
    longer = {
        # a list
        "messages": [*ask["messages"], {"role": "user", "content": "and more"}],  # type: ignore[misc]
        "max_tokens": 1,
    }
    assert [await cached(ask), await cached(ask), await cached(longer)] == [0, 96, 96]
    async with http.post("/reset_prefix_cache") as answer:
        assert answer.status == 200
    assert await cached(ask) == 0


async def test_tokenize_counts_as_prompts_are_counted(http: aiohttp.ClientSession) -> None:
    async with http.post("/tokenize", json={"messages": HELLO}) as answer:
        found = await answer.json()
    assert (found["count"], len(found["tokens"]), found["max_model_len"]) == (7, 7, LENGTH)
    async with http.post("/tokenize", json={"prompt": "one two three"}) as answer:
        assert (await answer.json())["count"] == 3
    assert (await refused(http, {"nothing": 1}, path="/tokenize", status=400))["error"][
        "param"
    ] == "body.prompt"


async def test_speed_plays_the_engine_faster_than_real() -> None:
    async with (
        served(arm(step_ms=10_000), ServerOptions(speed=10_000)) as running,
        client(running) as openai,
    ):
        async with asyncio.timeout(60):
            answer = await openai.chat.completions.create(
                model="tiny", messages=HELLO, max_tokens=1000, extra_body={"ignore_eos": True}
            )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 1000


PROBE: dict[str, Any] = {"prompt": [*range(40)], "max_tokens": 1, "temperature": 0}


async def test_what_is_likely_behind_a_prompt_and_within_it_is_listed_and_a_scored_prompt_is_computed_anew(
    http: aiohttp.ClientSession,
) -> None:
    first = await (await http.post("/v1/completions", json=PROBE | {"logprobs": 5})).json()
    again = await (await http.post("/v1/completions", json=PROBE | {"logprobs": 5})).json()
    scored = await (await http.post("/v1/completions", json=PROBE | {"prompt_logprobs": 3})).json()
    assert again["choices"][0]["logprobs"] == first["choices"][0]["logprobs"]
    (top,) = first["choices"][0]["logprobs"]["top_logprobs"]
    assert len(top) == 5
    assert max(top, key=top.get) == first["choices"][0]["text"]
    assert [
        each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in (first, again, scored)
    ] == [0, 32, 0]
    nothing, *rows = scored["choices"][0]["prompt_logprobs"]
    assert (nothing, len(rows)) == (None, 39)
    assert all(len(row) in (3, 4) for row in rows)
    streamed = await http.post(
        "/v1/completions", json=PROBE | {"prompt_logprobs": 3, "stream": True}
    )
    assert streamed.status == 400


@pytest.mark.parametrize(
    ("most", "asked", "status"), [(20, 21, 400), (20, 20, 200), (0, 1, 400), (5, 6, 400)]
)
async def test_a_server_lists_no_more_than_its_profile_says(
    most: int, asked: int, status: int
) -> None:
    capped = replace(arm(step_ms=0.5), logprobs=Logprobs(most=most))
    async with (
        served(capped) as server,
        aiohttp.ClientSession(server.url.removesuffix("/v1")) as http,
    ):
        for field in ("logprobs", "prompt_logprobs"):
            answer = await http.post("/v1/completions", json=PROBE | {field: asked})
            assert answer.status == status
            assert status == 200 or f"max allowed: {most}" in await answer.text()


async def test_a_server_may_die_of_what_it_is_asked_of_a_prompt() -> None:
    frail = replace(arm(step_ms=0.5), logprobs=Logprobs(crash_above=5))
    async with (
        served(frail) as server,
        aiohttp.ClientSession(server.url.removesuffix("/v1")) as http,
    ):
        assert (
            await http.post("/v1/completions", json=PROBE | {"prompt_logprobs": 5})
        ).status == 200
        with pytest.raises(aiohttp.ClientError):
            await http.post("/v1/completions", json=PROBE | {"prompt_logprobs": 6})
        with pytest.raises(aiohttp.ClientError):
            await http.get("/health")
