from __future__ import annotations

from agentload.ask.asker import Answered, Failed
from agentload.model.rows import AnswerRow
from agentload.run.inquiry import answer_row, request_id
from agentload.run.questions import Question
from agentload.tasks import Grade

QUESTION = Question(task="needle", context=4096, depth=0.5, number=7, repetition=1, item="s0-d00-0007")


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
        signals='{"agreement": 0, "agreement_of": 1, "agreement_unit": "word", "length_ratio": 1.0, "non_printing": 0.0}',
    )
    grade, reference = Grade(score=0.25, right=False), Answered(text="yes", finish_reason=None)
    assert answer_row("r", QUESTION, "b", reply=Answered(text="no", finish_reason=None), grade=grade, reference=reference) == row
    failed = answer_row("r", QUESTION, "b", reply=Failed(error="x", http_status=503), grade=None, reference=reference)
    assert (failed.right, failed.score, failed.answer, failed.signals) == (None, None, None, '{"error": "x", "http_status": 503}')


def test_a_request_is_named_by_run_arm_and_question_for_ever() -> None:
    assert request_id("r", QUESTION, "b") == "29bd21b67df50de7bec9ab3de05121f2"
