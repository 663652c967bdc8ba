from __future__ import annotations

from dataclasses import replace

import msgspec

from agentload.builtin import find
from agentload.layout.coverage import trace_shapes
from agentload.model.check import Has
from agentload.model.plan import Load, WaitScale
from agentload.model.shape import POINTS, TraceShape
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.study.stored import Notes, notes
from agentload.tracefile.files import read

TURNS = (
    Turn(add=(Segment(role="user", tokens=1_000, key="a"),), output=45),
    Turn(add=(Segment(role="tool", tokens=2_000, key="b"),), output=90, wait="tool", wait_s=4.0),
    Turn(
        keep=1,
        add=(Segment(role="user", tokens=1_000, key="c"),),
        output=20,
        wait="user",
        wait_s=60.0,
    ),
)
HEADER = Header(name="t", prefixes={"P": (Segment(role="system", tokens=160, key="p"),)})
SESSION = Session(session="s", workload="chat", start_s=0.0, prefix="P", turns=TURNS)
CAPPED = Load(waits={"user": WaitScale(cap_s=5.0)})


def test_the_shape_of_a_trace_is_that_of_its_calls_under_the_waits_of_the_load() -> None:
    other = replace(SESSION, session="o", workload="rag", turns=TURNS[:1])
    found = trace_shapes(Trace(header=HEADER, sessions=(SESSION, other)), CAPPED)
    assert found == (
        TraceShape(
            workload="chat",
            calls=3,
            context_tokens=(1_180, 1_205, 3_250),
            new_tokens=(1_000, 1_160, 2_008),  # what is cached is cached in whole blocks
            output_tokens=(20, 45, 90),
            wait_s=(4.0, 5.0),
            hit_rate=(0.0, 0.138, 0.365),
            tasks=1,
            task_turns=(3,),
            tool_s=4.0,
        ),
        # All of it was said before.
        TraceShape(
            workload="rag",
            calls=1,
            context_tokens=(1_205,),
            new_tokens=(8,),
            output_tokens=(45,),
            wait_s=(),
            hit_rate=(0.993,),
            tasks=1,
            task_turns=(1,),
        ),
    )


def test_a_task_is_a_session_that_no_other_one_spawned_checked_where_some_answer_is() -> None:
    checked = replace(TURNS[1], check=(Has(text="ZX"),))
    sessions = (
        SESSION,
        replace(SESSION, session="child", start_s=None, turns=TURNS[:1]),
        replace(SESSION, session="o", turns=(TURNS[0], checked)),
    )
    (found,) = trace_shapes(Trace(header=HEADER, sessions=sessions), CAPPED)
    assert (found.calls, found.tasks, found.task_turns) == (6, 2, (2, 3))
    assert (found.tool_s, found.checked) == (4.0, 1)


def test_of_a_long_trace_the_first_calls_are_read_and_the_shape_says_so() -> None:
    many = Trace(
        header=HEADER, sessions=tuple(replace(SESSION, session=f"s{number}") for number in range(9))
    )
    (found,) = trace_shapes(many, Load(), most=7)
    assert (found.calls, found.is_whole) == (6, False)
    (whole,) = trace_shapes(many, Load(), most=1_000)
    assert (whole.calls, whole.is_whole) == (27, True)
    (first,) = trace_shapes(many, Load(), most=1)
    assert first.calls == 3


def test_a_shape_is_small_whatever_the_trace_and_is_kept_with_its_run() -> None:
    found = trace_shapes(read(find("traces", "chat")), CAPPED)
    (chat,) = found
    assert (chat.calls, len(chat.context_tokens), chat.context_tokens[-1]) == (790, POINTS, 116_319)
    assert list(chat.context_tokens) == sorted(chat.context_tokens)
    kept = Notes(trace_shape=found)
    assert len(kept.text()) < 4_000
    assert msgspec.to_builtins(notes(kept.text())) == msgspec.to_builtins(kept)
