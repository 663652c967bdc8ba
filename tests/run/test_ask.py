"""Answers count for an arm only while its server is what the arm
is: before they are asked for, in the run they join, and after.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentload.ask.asker import EndpointAnswer, Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.model.rows import AnswerRow, FingerprintRow, Row, RunRow
from agentload.run.answer_rows import (
    answer_row,
    failure,
    non_printing,
    repeated_4grams,
    request_id,
    signals,
)
from agentload.run.ask import FAILURES, Eval, EvalPart, Evaluated, Inquiry
from agentload.run.past import past_answers
from agentload.run.questions import Question, QuestionSet, asking, catalog_questions
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extend
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
FORCED = extend(STUDY, force=True)
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
            if (
                not peer.request.line.split()[1].endswith("/chat/completions")
                or b'"stream"' in peer.request.body
            ):
                await streams(peer)
            else:
                self.asked += 1
                self.dtype = self.then or self.dtype
                await peer.send(HEAD % len(ANSWER) + ANSWER)

        return answer

    def page(self) -> str:
        return f'vllm:cache_config_info{{cache_dtype="{self.dtype}"}} 1.0\n'


TWO = QuestionSet(
    order=tuple(
        Question(task="t", context=8, depth=None, number=number, repetition=0, item=str(number))
        for number in range(2)
    ),
    item=lambda question: Item(
        messages=prompt(f"say ok {question.number}"), wanted=("ok",), output_tokens=4
    ),
    grade=lambda answer, *_: Grade(score=1.0, right=answer == "ok"),
)
"""Two questions, which "ok" answers."""


class Journalled(EvalPart):
    async def _load(self) -> str | None:
        return None


def evaluation(folder: Path, url: str) -> Eval:
    arm = Endpoint(name="a", url=url, expect={"kv_cache_dtype": "fp8"})
    return Eval(
        run="r1",
        study=STUDY,
        asked=TWO,
        endpoints=(arm,),
        database=folder / "x.duckdb",
        notes=Notes(arms=("a",)),
    )


async def asked(evaluation: Eval) -> Evaluated:
    return await Journalled(evaluation).play()


def rows(folder: Path) -> list[Row]:
    return [row for path in journals(folder / "x.duckdb", "r1") for row in journal.read(path)]


async def test_a_server_that_is_not_what_is_expected_is_not_asked_unless_forced_and_then_it_is_a_caveat(
    tmp_path: Path,
) -> None:
    server = Server(dtype="auto")
    async with serving(server.answer()) as served:
        made = evaluation(tmp_path, served.url)
        with pytest.raises(
            EndpointError, match="a: kv_cache_dtype: expected fp8, the server says auto"
        ):
            await asked(made)
        assert server.asked == 0
        assert (await asked(replace(made, study=FORCED))).answered == 2
        # What is said of servers is no other question: the run can be gone on with.
        assert (await asked(replace(made, study=FORCED, mode="resume"))).answered == 0
    (run,) = (row for row in rows(tmp_path) if isinstance(row, RunRow))
    assert (
        json.loads(run.options)["caveats"][0]
        == "a: kv_cache_dtype: expected fp8, the server says auto"
    )
    assert [row.moment for row in rows(tmp_path) if isinstance(row, FingerprintRow)] == [
        "before",
        "after",
    ] * 2


async def test_answers_join_a_run_only_of_the_server_that_it_was_played_on(tmp_path: Path) -> None:
    server = Server()
    async with serving(server.answer()) as served:
        made = evaluation(tmp_path, served.url)
        await played(tmp_path, [replace(made.endpoints[0], expect={})])
        server.dtype = "auto"
        joined = replace(made, mode="join", endpoints=(replace(made.endpoints[0], expect={}),))
        with pytest.raises(
            EndpointError,
            match="a is not the server that the run began with: kv_cache_dtype fp8 → auto",
        ):
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
        with pytest.raises(
            EndpointError,
            match="a changed while it was asked: kv_cache_dtype fp8 → auto; what it answered "
            "meanwhile",
        ):
            await asked(made)
        assert past_answers(made.database, "r1", ("a",)).answered == frozenset()
        last = {row.item: row for row in rows(tmp_path) if isinstance(row, AnswerRow)}
        assert [(row.right, row.score, row.answer, row.signals) for row in last.values()] == [
            (None, None, None, '{"error": "a changed meanwhile"}')
        ] * 2
        server.dtype, server.then = "fp8", None
        assert (await asked(replace(made, mode="resume"))).answered == 2


ASKED = catalog_questions(
    asking(tasks=["needle"], contexts=[4096], depths=1, items=1, repetitions=1, seed=0)
)
STUDY = Ask(servers=Live(endpoints="e"))
EVALUATION = Eval(
    run="r", study=STUDY, asked=ASKED, endpoints=(), database=Path("x.duckdb"), notes=Notes()
)
FAILED, ANSWERED = Failed(error="x"), EndpointAnswer(text="x", finish_reason=None)


@pytest.mark.parametrize(
    ("replies", "dead"),
    [
        ([("a", FAILED)] * (FAILURES - 1), None),
        ([("a", FAILED)] * FAILURES, "a failed 16 questions in a row, the last with: x"),
        (
            [("a", FAILED)] * (FAILURES - 1) + [("a", ANSWERED)] + [("a", FAILED)] * (FAILURES - 1),
            None,
        ),
        ([("a", FAILED), ("b", FAILED)] * (FAILURES - 1), None),  # each arm counts for itself
        (
            [("a", FAILED), ("b", ANSWERED)] * FAILURES,
            "a failed 16 questions in a row, the last with: x",
        ),
    ],
)
def test_an_arm_that_fails_so_many_times_in_a_row_ends_the_leg_and_its_error_is_named(
    replies: list[tuple[str, EndpointAnswer | Failed]], dead: str | None
) -> None:
    stops = asyncio.Event()
    inquiry = Inquiry(evaluation=EVALUATION, stops=stops, listener=lambda *_: None)
    for arm, reply in replies:
        inquiry._watch(arm, reply)
    assert (inquiry.dead, stops.is_set()) == (dead, dead is not None)


def test_an_arm_that_answers_nothing_is_named_however_few_the_questions() -> None:
    inquiry = Inquiry(evaluation=EVALUATION, stops=asyncio.Event(), listener=lambda *_: None)
    inquiry.notice_silence()
    assert inquiry.dead is None
    inquiry._watch("a", FAILED)
    inquiry.notice_silence()
    assert inquiry.dead == "a failed all questions, the last with: x"


def said(
    text: str,
    *,
    logprobs: tuple[float, ...] | None = None,
    tokens: tuple[str, ...] | None = None,
    finish: str = "stop",
) -> EndpointAnswer:
    return EndpointAnswer(
        text=text,
        finish_reason=finish,
        prompt_tokens=9,
        output_tokens=len(text.split()),
        tokens=tokens,
        logprobs=logprobs,
    )


def test_the_reference_is_told_without_comparison() -> None:
    assert json.loads(signals(said("so it is"), None)) == {
        "finish_reason": "stop",
        "non_printing": 0.0,
        "output_tokens": 3,
        "prompt_tokens": 9,
    }


def test_another_arm_is_told_how_far_it_agrees_in_tokens_with_the_difference_of_their_probabilities() -> (
    None
):
    mine = said("a b d", tokens=("a", " b", " d"), logprobs=(-0.1, -0.4, -3.0))
    theirs = said("a b c e", tokens=("a", " b", " c", " e"), logprobs=(-0.2, -0.2, -0.1, -0.1))
    assert json.loads(signals(mine, theirs)) == {
        "agreement": 2,
        "agreement_of": 4,
        "agreement_unit": "token",
        "finish_reason": "stop",
        "length_ratio": 0.75,
        "logprob_delta": 0.15,
        "nan_logprobs": 0,
        "non_printing": 0.0,
        "output_tokens": 3,
        "prompt_tokens": 9,
    }


def test_without_tokens_words_are_compared() -> None:
    seen = json.loads(signals(said("a b"), said("a c")))
    assert (seen["agreement"], seen["agreement_unit"], seen["agreement_of"]) == (1, "word", 2)
    for mine, theirs in (
        (("a", " b"), None),
        (None, ("a", " c")),
    ):  # tokens of one side alone compare nothing
        assert (
            json.loads(signals(said("a b", tokens=mine), said("a c", tokens=theirs)))[
                "agreement_unit"
            ]
            == "word"
        )


def test_garbage_and_broken_probabilities_are_noticed() -> None:
    seen = json.loads(signals(said("! " * 40, logprobs=(math.nan, -1.0), finish="length"), None))
    assert (seen["garbage"], seen["nan_logprobs"], seen["repeated_4grams"]) == (
        "repetition: nothing but '! '",
        1,
        0.973,
    )


def test_a_failure_is_told_with_its_status() -> None:
    assert [
        json.loads(failure(each))
        for each in (Failed(error="x", http_status=500), Failed(error="y"))
    ] == [{"error": "x", "http_status": 500}, {"error": "y"}]


@pytest.mark.parametrize(
    ("words", "share"),
    [("a b c", None), ("a b c d", 0.0), ("a b a b a b", 0.3333), ("a a a a a a a a", 0.8)],
)
def test_the_share_of_four_words_that_came_before(words: str, share: float | None) -> None:
    assert repeated_4grams(words.split()) == share


@pytest.mark.parametrize(("text", "share"), [("", None), ("a\n\tb", 0.0), ("a\x00\ufffdb", 0.5)])
def test_the_share_of_signs_that_no_text_shows(text: str, share: float | None) -> None:
    assert non_printing(text) == share


QUESTION = Question(
    task="needle", context=4096, depth=0.5, number=7, repetition=1, item="s0-d00-0007"
)


def test_an_answer_is_kept_with_its_grade_and_a_failure_without_one() -> None:
    row = AnswerRow(
        run_id="r",
        arm="b",
        task="needle",
        item="s0-d00-0007",
        context_tokens=4096,
        depth=0.5,
        repetition=1,
        score=0.25,
        right=False,
        answer="no",
        request_id=request_id("r", QUESTION, "b"),
        signals='{"agreement": 0, "agreement_of": 1, "agreement_unit": "word", "length_ratio": '
        '1.0, "non_printing": 0.0}',
    )
    grade, reference = (
        Grade(score=0.25, right=False),
        EndpointAnswer(text="yes", finish_reason=None),
    )
    assert (
        answer_row(
            "r",
            QUESTION,
            "b",
            reply=EndpointAnswer(text="no", finish_reason=None),
            grade=grade,
            reference=reference,
        )
        == row
    )
    failed = answer_row(
        "r",
        QUESTION,
        "b",
        reply=Failed(error="x", http_status=503),
        grade=None,
        reference=reference,
    )
    assert (failed.right, failed.score, failed.answer, failed.signals) == (
        None,
        None,
        None,
        '{"error": "x", "http_status": 503}',
    )


def test_a_request_is_named_by_run_arm_and_question_for_ever() -> None:
    assert request_id("r", QUESTION, "b") == "29bd21b67df50de7bec9ab3de05121f2"
