"""A question to a server that answers wrongly in any way has an error
of its own: what is stored was said, and no count is what it cannot be.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentload.ask import asker as asker_module
from agentload.ask.asker import Asker, EndpointAnswer, Failed
from agentload.ask.plain import Plain, StreamAnswer
from agentload.endpoints.endpoint import Endpoint
from agentload.run.answer_rows import answer_row
from agentload.run.questions import Question
from agentload.store import journal
from tests.live.hostile import MODES, NESTED, TIMED_OUT
from tests.live.hostility import MB, event, raw, whole
from tests.live.scripted import Answer, Peer, serving

pytestmark = pytest.mark.loopback
OUTPUT = 8
ANSWERS = {"a_whole_answer_that_is_no_stream"}
"""Modes that break a stream, and answer a question as they should."""
QUICK = [name for name, mode in MODES.items() if not mode.ends & TIMED_OUT and name not in ANSWERS]
PATIENCE_S = 10
"""For servers that never end; those that answer have a minute."""


def answer(*, content: object = "fine", **changes: object) -> bytes:
    """Return a whole answer that is good but for these changes."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": "stop",
        "logprobs": None,
    }
    body = {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    }
    for name in choice.keys() & changes.keys():
        choice[name] = changes.pop(name)
    return json.dumps(body | changes).encode()


BODIES: dict[str, bytes] = {
    "content_that_is_a_number": answer(content=7),
    "content_that_is_a_list": answer(content=[{"type": "text", "text": "x"}]),
    "content_that_is_an_object": answer(content={"a": 1}),
    "half_a_surrogate_pair": answer(content="a").replace(b'"a"', b'"\\ud800"'),
    "a_message_that_is_a_list": answer(message=["x"]),
    "a_message_that_is_missing": answer(message=None, content=None),
    "usage_that_is_a_list": answer(usage=[1, 2]),
    "counts_that_are_texts": answer(usage={"prompt_tokens": "5", "completion_tokens": "3"}),
    "counts_below_nothing": answer(usage={"prompt_tokens": -5, "completion_tokens": -3}),
    "counts_beyond_64_bits": answer(usage={"prompt_tokens": 1 << 70, "completion_tokens": 3}),
    "a_billion_tokens": answer(usage={"prompt_tokens": 5, "completion_tokens": 10**9}),
    "counts_that_are_no_numbers": answer().replace(b'"prompt_tokens": 5', b'"prompt_tokens": NaN'),
    "more_cached_than_prompted": answer(
        usage={
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 9},
        }
    ),
    "finish_reason_that_is_a_list": answer(finish_reason=["stop"]),
    "finish_reason_that_drives_a_terminal": answer(finish_reason="\x1b[2J\u202e"),
    "finish_reason_of_an_abort": answer(finish_reason="abort"),
    "choices_that_are_an_object": answer(choices={"0": 1}),
    "choices_that_are_nothing": answer(choices=[]),
    "choices_that_are_null": answer(choices=[None]),
    "a_choice_that_nobody_asked_for": answer(index=9),
    "tool_calls_that_are_a_text": answer(message={"content": None, "tool_calls": "call"}),
    "tool_calls_without_a_function": answer(message={"content": None, "tool_calls": [7]}),
    "a_call_whose_arguments_are_an_object": answer(
        message={"content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    ),
    "logprobs_that_are_texts": answer(logprobs={"content": [{"token": "a", "logprob": "x"}]}),
    "logprobs_of_tokens_that_are_numbers": answer(
        logprobs={"content": [{"token": 7, "logprob": -1.0}]}
    ),
    "logprobs_that_are_a_number": answer(logprobs={"content": 9}),
    "an_error_inside": answer(error={"message": "engine died", "type": "x"}),
    "text_of_2_mb_for_8_tokens": answer(content="ab " * (2 * MB // 3)),
    "nested_lists": NESTED,
    "a_million_choices": b'{"choices":[' + b"{}," * 1_000_000 + b"{}]}",
    "no_json": b"<html>login</html>",
    "nothing": b"",
}
GOOD: dict[str, bytes] = {
    "good": answer(),
    "without_usage": answer(usage=None),
    "with_logprobs": answer(logprobs={"content": [{"token": "fine", "logprob": None}]}),
    "nul_and_controls": answer(content="\x00\x1b[2J\u202e"),
    "a_tool_call": answer(
        message={"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    ),
}


def problem(found: EndpointAnswer | StreamAnswer | Failed) -> str | None:
    """Return what is wrong with a failed question; None where it says well why it failed."""
    if not isinstance(found, Failed):
        return f"was taken for an answer: {found}"[:300]
    if not 7 < len(found.error) <= 300 or not found.error.isprintable():
        return f"says {found.error!r}"
    names = ("TypeError", "AttributeError", "KeyError", "IndexError", "ValueError")
    return f"is called a mistake of ours: {found.error}" if found.error.startswith(names) else None


async def asked(reply: Answer, path: Path, *, within_s: float = 60) -> EndpointAnswer | Failed:
    """Ask a server one question, and return the answer once it has come back from a journal."""
    async with serving(reply) as server:
        endpoint = Endpoint(name="a", url=server.url, answer_s=within_s)
        async with Asker(endpoint, "m") as asker:
            found = await asker.ask(
                [{"role": "user", "content": "so"}],
                tools=(),
                output_tokens=OUTPUT,
                seed=0,
                request_id="r1",
            )
        server.failures.clear()
    question = Question(task="needle", context=64, depth=0.5, number=0, repetition=0, item="i")
    row = answer_row("r", question, "a", reply=found, grade=None, reference=None)
    with journal.Writer(path) as writer:
        writer.append(row)
    assert list(journal.read(path)) == [row]
    return found


async def asked_all(
    replies: Mapping[str, Answer], folder: Path, *, within_s: float = 60
) -> dict[str, EndpointAnswer | Failed]:
    """Ask a server for each of the replies, eight at a time."""
    found: dict[str, EndpointAnswer | Failed] = {}
    waiting = iter(replies.items())

    async def work() -> None:
        for name, reply in waiting:
            found[name] = await asked(reply, folder / name, within_s=within_s)

    async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(work())
    return found


def saying(content: bytes) -> Answer:
    async def reply(peer: Peer) -> None:
        await whole(peer, content, status=b"200 OK")

    return reply


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asker_module, "RETRIES", 0)


@pytest.mark.slow
async def test_an_answer_that_cannot_be_is_a_failed_question_that_says_why(tmp_path: Path) -> None:
    found = await asked_all({name: saying(each) for name, each in BODIES.items()}, tmp_path)
    wrong = {name: problem(each) for name, each in found.items()}
    assert {name: why for name, why in wrong.items() if why} == {}


async def test_an_answer_that_is_odd_and_can_be_is_an_answer(tmp_path: Path) -> None:
    found = await asked_all({name: saying(each) for name, each in GOOD.items()}, tmp_path)
    assert {name for name, each in found.items() if isinstance(each, Failed)} == set()


async def test_a_cookie_that_no_header_can_hold_costs_no_later_question() -> None:
    async def reply(peer: Peer) -> None:
        head = b"HTTP/1.1 200 OK\r\nset-cookie: a=\x80\r\nset-cookie: b=1\r\ncontent-length: %d\r\n\r\n"
        await peer.send(head % len(answer()) + answer())

    async with serving(reply) as server, Asker(Endpoint(name="a", url=server.url), "m") as asker:
        found = [
            await asker.ask([], tools=(), output_tokens=OUTPUT, seed=0, request_id="r")
            for _ in range(2)
        ]
    assert [each for each in found if isinstance(each, Failed)] == []
    assert server.requests[1].headers["cookie"] == "b=1"


async def test_a_connection_that_is_reset_is_named(tmp_path: Path) -> None:
    found = await asked(MODES["a_reset_at_any_byte"].answer, tmp_path / "x")
    assert isinstance(found, Failed)
    assert found.error.startswith("ConnectionResetError: ")


@pytest.mark.slow
async def test_what_breaks_a_timed_call_fails_a_question(tmp_path: Path) -> None:
    found = await asked_all(
        {name: MODES[name].answer for name in QUICK}, tmp_path, within_s=PATIENCE_S
    )
    wrong = {name: problem(each) for name, each in found.items()}
    assert {name: why for name, why in wrong.items() if why} == {}


async def streamed(reply: Answer) -> StreamAnswer | Failed:
    async with serving(reply) as server:
        endpoint = Endpoint(name="a", url=server.url, answer_s=PATIENCE_S)
        async with Plain(endpoint, "m") as plain:
            found = await plain.stream([{"role": "user", "content": "so"}], output_tokens=3)
        server.failures.clear()
    return found


def oddity(found: StreamAnswer | Failed) -> str | None:
    """Return what is wrong with a stream that is compared; None where nothing is."""
    if isinstance(found, Failed):
        return problem(found)
    counts = (found.prompt_tokens, found.cached_tokens)
    if not all(each is None or (type(each) is int and 0 <= each < 1 << 31) for each in counts):
        return f"counts {counts}"
    ids = {type(each) for each in found.token_ids}
    return None if ids <= {int} and len(found.text) < MB else f"{ids}, {len(found.text)} characters"


@pytest.mark.slow
async def test_a_stream_that_is_compared_and_not_timed_has_counts_or_fails() -> None:
    wrong: dict[str, str] = {}
    waiting = iter(QUICK)

    async def work() -> None:
        for name in waiting:
            if why := oddity(await streamed(MODES[name].answer)):
                wrong[name] = why

    async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(work())
    assert wrong == {}


@pytest.mark.parametrize(
    ("ids", "counts"),
    [
        (["x"], {"prompt_tokens": 5, "completion_tokens": 3}),
        ([1], {"prompt_tokens": "5", "completion_tokens": [3]}),
    ],
)
async def test_a_stream_with_counts_of_other_types_fails(ids: object, counts: object) -> None:
    async def reply(peer: Peer) -> None:
        chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": ids}]}
        await raw(peer, event(chunk), event({"choices": [], "usage": counts}), event(b"[DONE]"))

    assert problem(await streamed(reply)) is None


def chunk(text: str, index: int = 0, **more: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": {"content": text}, **more}]}


OPEN_ERROR = b'data: {"error": {"message": "the engine died"}}'
COUNTS = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((event(chunk("a")), OPEN_ERROR), "the engine died"),
        ((event(chunk("a")), event(chunk("b", 1)), event(b"[DONE]")), "a choice 1 came"),
        ((event(chunk("a")),), "the answer has no finish_reason"),
    ],
)
async def test_a_stream_fails_as_a_timed_one_does(parts: tuple[bytes, ...], why: str) -> None:
    async def reply(peer: Peer) -> None:
        await raw(peer, *parts)

    found = await streamed(reply)
    assert isinstance(found, Failed)
    assert why in found.error


async def test_counts_whose_blank_line_is_cut_off_are_read() -> None:
    async def reply(peer: Peer) -> None:
        last = event({"choices": [], "usage": COUNTS}).rstrip()
        await raw(peer, event(chunk("a", token_ids=[5], finish_reason="stop")), last)

    found = await streamed(reply)
    assert isinstance(found, StreamAnswer)
    assert (found.text, found.token_ids) == ("a", (5,))
    assert (found.prompt_tokens, found.cached_tokens) == (7, 4)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"error": {"message": "no room"}}', "no room"),
        (b'{"choices": []}', "the answer is of type 'application/json', and no stream"),
    ],
)
async def test_an_answer_that_is_no_stream_says_so_or_why(body: bytes, why: str) -> None:
    found = await streamed(saying(body))
    assert isinstance(found, Failed)
    assert why in found.error
