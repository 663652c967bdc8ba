"""What is written down about an evaluation: the run that it is, where it joins none, and each answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from agentload import __version__
from agentload.ask.asker import Answered, Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, kind_of, served_model
from agentload.experiment.asking.plan import Question
from agentload.experiment.asking.signals import failure, signals
from agentload.experiment.legs.record import arm_row
from agentload.model.rows import AnswerRow, Row, RunRow
from agentload.replay.naming import named
from agentload.tasks import Grade


def described_run(
    run: str, endpoints: Sequence[Endpoint], identities: Mapping[str, Identity], *, seed: int, command: str, options: str
) -> tuple[Row, ...]:
    """Describe the run and its arms."""
    models = {each.name: served_model(each, identities[each.name]) for each in endpoints}
    names = set(models.values())
    described = RunRow(
        run_id=run,
        kind=kind_of(identities),
        name="eval",
        created_ns=time.time_ns(),
        trace_name=None,
        trace_hash=None,
        model=names.pop() if len(names) == 1 else None,
        design="interleaved",
        seed=seed,
        version=__version__,
        command=command,
        options=options,
    )
    return described, *(arm_row(run, place, each, models[each.name], identities[each.name]) for place, each in enumerate(endpoints))


def answer_row(
    run: str, question: Question, arm: str, *, reply: Answered | Failed, grade: Grade | None, reference: Answered | None
) -> AnswerRow:
    """Say what an arm answered; *reference* is what the arm that it is held against answered."""
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
        answer=reply.text if isinstance(reply, Answered) else None,
        request_id=request_id(run, question, arm),
        signals=signals(reply, reference) if isinstance(reply, Answered) else failure(reply),
    )


def request_id(run: str, question: Question, arm: str) -> str:
    """Name the request by which an arm is asked a question."""
    return named(run, arm, question.task, *map(str, (question.context, question.item, question.repetition)))
