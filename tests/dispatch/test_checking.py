from __future__ import annotations

from agentload.builtin import find
from agentload.emulator.profile import parse
from agentload.layout.plan import Scheme, plan
from agentload.model.check import Has
from agentload.model.rows import AnswerRow, CallRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.virtual.shell import Shell

ARMS = {
    arm.name: arm
    for arm in parse(
        find("profiles", "llama-3.1-8b-h100").read_text(), name="llama-3.1-8b-h100"
    ).arms
}


def asked(name: str, wanted: str) -> Session:
    fact = Segment(
        role="user", tokens=300, key=f"{name}.hay", plant="The code of vault 7 is ZX-4417.", at=0.5
    )
    question = Segment(role="user", tokens=12, key=f"{name}.q", text="What is the code of vault 7?")
    turn = Turn(add=(fact, question), output=8, check=(Has(text=wanted),))
    return Session(session=name, workload="rag", start_s=0.0, turns=(turn, Turn(add=(), output=3)))


def test_checked_turns_of_a_replayed_trace_become_graded_answers() -> None:
    trace = Trace(
        header=Header(name="t", seed=1),
        sessions=(asked("right", "ZX-4417"), asked("wrong", "no such text")),
    )
    rows = list(
        Shell(plan(trace, ["bf16", "fp8"], run="r", scheme=Scheme(pairs=1)), ARMS, seed=0).play()
    )
    answers = [row for row in rows if isinstance(row, AnswerRow)]
    calls = {row.request_id: row for row in rows if isinstance(row, CallRow)}
    assert [(row.arm, row.task, row.item) for row in answers] == [
        (arm, "check/rag", f"{name}[0]")
        for arm in dict.fromkeys(row.arm for row in answers)
        for name in ("right", "wrong")
    ]
    assert all(row.right is False and row.score == 0.0 for row in answers if row.item == "wrong[0]")
    assert {calls[row.request_id or ""].turn for row in answers} == {0}
    assert all(row.answer for row in answers)
