"""Answers count for an arm only while its server is what the arm is: before they are asked for, in the run they join, and after."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.model.rows import AnswerRow, FingerprintRow, Row, RunRow
from agentload.run.ask import Leg
from agentload.run.inquiry import Asked, Eval
from agentload.run.past import given
from agentload.run.questions import Question
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extended
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.study.stored import Notes
from agentload.tasks import Grade, Item, prompt
from tests.live.scripted import Answer, Peer, serving
from tests.run.playing import answering, played

pytestmark = pytest.mark.loopback
SAID = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
STUDY = Ask(servers=Live(endpoints="e"))
FORCED = extended(STUDY, force=True)
ANSWER = json.dumps({**SAID, "choices": [CHOICE]}).encode()


@dataclass
class Server:
    """One that says what dtype it keeps, and may change its mind after an answer."""

    dtype: str = "fp8"
    then: str | None = None
    asked: int = 0

    def answer(self) -> Answer:
        streams = answering(pages=lambda path, _: self.page() if path == "/metrics" else None)

        async def answer(peer: Peer) -> None:
            if not peer.request.line.split()[1].endswith("/chat/completions") or b'"stream"' in peer.request.body:
                await streams(peer)
            else:
                self.asked += 1
                self.dtype = self.then or self.dtype
                await peer.send(HEAD % len(ANSWER) + ANSWER)

        return answer

    def page(self) -> str:
        return f'vllm:cache_config_info{{cache_dtype="{self.dtype}"}} 1.0\n'


class Two:
    """Two questions, which "ok" answers."""

    def questions(self) -> tuple[Question, ...]:
        return tuple(Question(task="t", context=8, depth=None, number=number, repetition=0, item=str(number)) for number in range(2))

    def item(self, question: Question) -> Item:
        return Item(messages=prompt(f"say ok {question.number}"), wanted=("ok",), output_tokens=4)

    def grade(self, answer: str, question: Question, item: Item) -> Grade:
        return Grade(score=1.0, right=answer == "ok")


class Journalled(Leg):
    async def _load(self) -> str | None:
        return None


def evaluation(folder: Path, url: str) -> Eval:
    arm = Endpoint(name="a", url=url, expect={"kv_cache_dtype": "fp8"})
    return Eval(run="r1", study=STUDY, asked=Two(), endpoints=(arm,), database=folder / "x.duckdb", notes=Notes(arms=("a",)))


async def asked(evaluation: Eval) -> Asked:
    return await Journalled(evaluation).play()


def rows(folder: Path) -> list[Row]:
    return [row for path in journals(folder / "x.duckdb", "r1") for row in journal.read(path)]


async def test_a_server_that_is_not_what_is_expected_is_not_asked_unless_forced_and_then_it_is_a_caveat(tmp_path: Path) -> None:
    server = Server(dtype="auto")
    async with serving(server.answer()) as served:
        made = evaluation(tmp_path, served.url)
        with pytest.raises(EndpointError, match="a: kv_cache_dtype: expected fp8, the server says auto"):
            await asked(made)
        assert server.asked == 0
        assert (await asked(replace(made, study=FORCED))).answered == 2
        # What is said of servers is no other question: the run can be gone on with.
        assert (await asked(replace(made, study=FORCED, goes_on="resume"))).answered == 0
    (run,) = (row for row in rows(tmp_path) if isinstance(row, RunRow))
    assert json.loads(run.options)["caveats"][0] == "a: kv_cache_dtype: expected fp8, the server says auto"
    assert [row.moment for row in rows(tmp_path) if isinstance(row, FingerprintRow)] == ["before", "after"] * 2


async def test_answers_join_a_run_only_of_the_server_that_it_was_played_on(tmp_path: Path) -> None:
    server = Server()
    async with serving(server.answer()) as served:
        made = evaluation(tmp_path, served.url)
        await played(tmp_path, [replace(made.endpoints[0], expect={})])
        server.dtype = "auto"
        joined = replace(made, goes_on="join", endpoints=(replace(made.endpoints[0], expect={}),))
        with pytest.raises(EndpointError, match="a is not the server that the run began with: kv_cache_dtype fp8 → auto"):
            await asked(joined)
        assert server.asked == 0
        server.dtype = "fp8"
        assert (await asked(joined)).answered == 2
    own = [row for row in rows(tmp_path) if isinstance(row, FingerprintRow) and row.leg == 2]
    assert [row.moment for row in own] == ["before", "after"]


async def test_what_a_server_that_changed_meanwhile_answered_is_asked_again(tmp_path: Path) -> None:
    server = Server(then="auto")
    async with serving(server.answer()) as served:
        made = evaluation(tmp_path, served.url)
        with pytest.raises(EndpointError, match="a changed while it was asked: kv_cache_dtype fp8 → auto; what it answered meanwhile"):
            await asked(made)
        assert given(made.database, "r1", ("a",)).answered == frozenset()
        last = {row.item: row for row in rows(tmp_path) if isinstance(row, AnswerRow)}
        assert [(row.right, row.score, row.answer, row.signals) for row in last.values()] == [
            (None, None, None, '{"error": "a changed meanwhile"}')
        ] * 2
        server.dtype, server.then = "fp8", None
        assert (await asked(replace(made, goes_on="resume"))).answered == 2
