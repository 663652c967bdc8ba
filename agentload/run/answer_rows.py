"""Write down each answer of an arm: its grade, faults in its text, match with the reference."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agentload.ask.asker import EndpointAnswer, Failed
from agentload.dispatch.garbage import garbage
from agentload.dispatch.naming import hex_name
from agentload.model.rows import AnswerRow
from agentload.model.walk import common_start
from agentload.run.questions import Question
from agentload.tasks import Grade


def void_answers(rows: Iterable[AnswerRow], why: str) -> Iterator[AnswerRow]:
    """Return answers as unanswered, with *why* as their error: a resumed run asks them again."""
    for row in rows:
        yield replace(row, score=None, right=None, answer=None, signals=failure(Failed(error=why)))


def signals(reply: EndpointAnswer, reference: EndpointAnswer | None) -> str:
    """Return the signals stored with an answer, as JSON.

    *reference* is None for the reference arm itself and where the reference failed.
    """
    said = reply.text
    seen: dict[str, object] = {
        "finish_reason": reply.finish_reason,
        "prompt_tokens": reply.prompt_tokens,
        "output_tokens": reply.output_tokens,
        "repeated_4grams": repeated_4grams(said.split()),
        "non_printing": non_printing(said),
        "garbage": garbage(said),
        "nan_logprobs": None if reply.logprobs is None else sum(map(math.isnan, reply.logprobs)),
    }
    if reference is not None:
        mine, theirs, unit = _units(reply, reference)
        # Greedy texts diverge at near ties: where they do says more than whether they are equal.
        same = common_start(mine, theirs)
        seen |= {
            "agreement": same,
            "agreement_unit": unit,
            "agreement_of": max(len(mine), len(theirs)),
            "length_ratio": round(len(mine) / len(theirs), 4) if theirs else None,
            "logprob_delta": _delta(reply, reference, same),
        }
    return json.dumps(
        {name: value for name, value in seen.items() if value is not None}, sort_keys=True
    )


def failure(failed: Failed) -> str:
    """Return the error that is stored in place of an answer that never came, as JSON."""
    return json.dumps(
        {
            "error": failed.error,
            **({} if failed.http_status is None else {"http_status": failed.http_status}),
        },
        sort_keys=True,
    )


def repeated_4grams(words: Sequence[str]) -> float | None:
    """Return the share of four-word runs that occurred before in the text; None without any."""
    runs = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    if not runs:
        return None
    return round(1 - len(set(runs)) / len(runs), 4)


def non_printing(text: str) -> float | None:
    """Return the share of control and replacement characters; None for an empty text."""
    if not text:
        return None
    return round(
        sum(not (sign.isprintable() or sign.isspace()) or sign == "\ufffd" for sign in text)
        / len(text),
        4,
    )


def _units(
    reply: EndpointAnswer, reference: EndpointAnswer
) -> tuple[Sequence[str], Sequence[str], str]:
    if reply.tokens is not None and reference.tokens is not None:
        return reply.tokens, reference.tokens, "token"
    return reply.text.split(), reference.text.split(), "word"


def _delta(reply: EndpointAnswer, reference: EndpointAnswer, same: int) -> float | None:
    """Return the mean absolute difference of log probabilities over the *same* shared tokens."""
    if reply.logprobs is None or reference.logprobs is None or not same:
        return None
    apart = [
        abs(a - b) for a, b in zip(reply.logprobs[:same], reference.logprobs[:same], strict=True)
    ]
    mean = sum(apart) / same
    if math.isnan(mean):
        return None
    return round(mean, 6)


def answer_row(
    run: str,
    question: Question,
    arm: str,
    *,
    reply: EndpointAnswer | Failed,
    grade: Grade | None,
    reference: EndpointAnswer | None,
) -> AnswerRow:
    """Build the row of one arm's answer; *reference* is the reference's, to compare with."""
    return AnswerRow(
        run_id=run,
        arm=arm,
        task=question.task,
        item=question.item,
        context_tokens=question.context,
        depth=question.depth,
        repetition=question.repetition,
        score=None if grade is None else grade.score,
        right=None if grade is None else grade.right,
        answer=reply.text if isinstance(reply, EndpointAnswer) else None,
        request_id=request_id(run, question, arm),
        signals=signals(reply, reference) if isinstance(reply, EndpointAnswer) else failure(reply),
    )


def request_id(run: str, question: Question, arm: str) -> str:
    """Name the request that asks an arm a question."""
    item = question.item if question.part is None else f"{question.item}.{question.part}"
    return hex_name(
        run, arm, question.task, *map(str, (question.context, item, question.repetition))
    )
