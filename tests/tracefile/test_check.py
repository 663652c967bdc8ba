from collections.abc import Sequence
from typing import Any

import pytest

from agentload.model.check import Matches
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef
from agentload.tracefile.check import CheckReport, check
from agentload.workloads import catalog

HEADER = Header(
    name="x",
    prefixes={
        "p": (
            Segment(role="system", tokens=5, key="sys"),
            Segment(role="tools", tokens=9, key="tools"),
        )
    },
)


def said(tokens: int = 4, key: str = "u", **fields: Any) -> Segment:
    return Segment(role="user", tokens=tokens, key=key, **fields)


def turn(*add: Segment, output: int = 3, **fields: Any) -> Turn:
    return Turn(add=add or (said(),), output=output, **fields)


def session(name: str, *turns: Turn, start_s: float | None = 0.0, **fields: Any) -> Session:
    return Session(session=name, workload="w", turns=turns or (turn(),), start_s=start_s, **fields)


def ref(name: str, index: int) -> TurnRef:
    return TurnRef(session=name, turn=index)


def found(*sessions: Session) -> list[str]:
    return [str(problem) for problem in checked(*sessions).problems]


def checked(*sessions: Session) -> CheckReport:
    return check(Trace(header=HEADER, sessions=sessions))


CASES: list[tuple[Sequence[Session], list[str]]] = [
    ((session("a"), session("b", start_s=1.0)), []),
    ((session("a", start_s=2.0), session("b", start_s=1.0)), [("session b: starts at 1 s, "
        "earlier than the "
        "session before it (2 s)")]),
    ((session("a"), session("a")), ["session a: has the name of an earlier session"]),
    ((session("a", start_s=None),), ["session a: has no start_s, and no turn before it spawns it"]),
    # spawning
    ((session("a", turn(spawn=("b",))), session("b", start_s=None)), []),
    ((session("a", turn(spawn=("b",))), session("c")), [("session a, turn 0: spawns session b, "
        "which does not follow it")]),
    ((session("a", turn(spawn=("b",))),), [("session a, turn 0: spawns session b, "
        "which does not follow it")]),
    (
        (session("a", turn(spawn=("b",))), session("b", start_s=0.0)),
        ["session b: starts by the clock but is spawned by session a, turn 0"],
    ),
    (
        (session("a", turn(spawn=("b",)), turn(spawn=("b",))), session("b", start_s=None)),
        ["session a, turn 1: spawns session b again"],
    ),
    ((session("b"), session("a", turn(spawn=("b",)))), [("session a, turn 0: spawns session b, "
        "which came before it")]),
    # waiting
    ((session("a"), session("b", turn(after=(ref("a", -1),)))), []),
    ((session("a"), session("b", turn(after=(ref("a", 1),)))), [("session b, turn 0: waits for "
        "turn 1 of "
        "session a, which has only 1")]),
    ((session("b", turn(after=(ref("a", 1),))), session("a")), [("session b, turn 0: waits for "
        "turn 1 of "
        "session a, which has only 1")]),
    ((session("b", turn(after=(ref("a", 0),))),), [("session b, turn 0: waits for session a, "
        "which does not exist")]),
    ((session("a", turn(spawn=("b",)), turn(after=(ref("b", -1),))), session("b", start_s=None)), []),
    # circles
    ((session("a", turn(), turn(after=(ref("a", 0),))),), []),
    ((session("a", turn(), turn(after=(ref("a", 1),))),), [("session a: waits for itself: "
        "a/1 → a/1")]),
    ((session("a", turn(after=(ref("a", -1),)), turn()),), [("session a: waits for itself: "
        "a/0 → a/1 → a/0")]),
    (
        (session("a", turn(after=(ref("b", 0),))), session("b", turn(after=(ref("a", 0),)))),
        ["session b: waits for itself: a/0 → b/0 → a/0"],
    ),
    (
        (session("a", turn(after=(ref("b", 0),), spawn=("b",))), session("b", start_s=None)),
        ["session b: waits for itself: a/0 → b/0 → a/0"],
    ),
    # live edges
    ((session("a"), session("b", turn(said(source=ref("a", 0)), after=(ref("a", 0),)))), []),
    ((session("a", turn(), turn(said(key="v", source=ref("a", 0)))),), []),
    ((session("a", turn(spawn=("b",))), session("b", turn(said(source=ref("a", 0))), start_s=None)), []),
    (
        (session("a"), session("b", turn(said(source=ref("a", 0))))),
        [("session b, turn 0: takes the answer of turn 0 of session a without waiting for "
            "it: name it in 'after'")],
    ),
    # contexts
    ((session("a", turn(keep=2), prefix="p"),), []),
    ((session("a", turn(), turn(keep=4), prefix="p"),), [("session a, turn 1: keeps 4 segments "
        "of a context of 3")]),
    ((session("a", prefix="q"),), [("session a: starts with prefix 'q', not in "
        "the header (it has p)")]),
    ((session("a", Turn(add=(), output=1)),), ["session a, turn 0: sends nothing"]),
    ((session("a", turn(output=0)),), ["session a, turn 0: asks for 0 tokens"]),
    ((session("a", turn(said(-4))),), ["session a, turn 0: segment 'u' has -4 tokens"]),
    ((session("a", turn(asks=(("stream", "false"), ("user", '"u"')))),), [("session a, turn 0: asks for stream, "
        "which the replay sets")]),
    ((session("a", turn(thinking=4)),), ["session a, turn 0: thinks 4 of 3 tokens"]),
    ((session("a", turn(wait_s=-1.0)),), ["session a, turn 0: waits -1 s"]),
    (
        (session("a", turn(said(plant="a b c d e", at=0.5))),),
        ["session a, turn 0: segment 'u': the plant has more words than the segment tokens (4)"],
    ),
    (
        (session("a", turn(check=(Matches(pattern="("),))),),
        [("session a, turn 0: check 0: '(' is not a regular expression: missing ), "
            "unterminated subpattern at position 0")],
    ),
    # keys
    ((session("a", turn(said(key="sys"))),), [("session a, turn 0: key 'sys' is user "
        "here and system before")]),
    (
        (session("a", turn(said(), Segment(role="tool", tokens=4, key="u"))),),
        ["session a, turn 0: key 'u' is tool here and user before"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sessions", "problems"), CASES)
def test_what_cannot_be_played_is_said_with_its_place(
    sessions: Sequence[Session], problems: list[str]
) -> None:
    assert found(*sessions) == problems


def test_a_check_counts_what_it_read_and_contexts_off_the_recorded_ones() -> None:
    report = checked(
        session("a", turn(context=100), turn(said(96, "v"), context=100)), session("b")
    )
    assert report == CheckReport(
        sessions=2, turns=3, off_context=1, off_order=0, problem_count=0, problems=()
    )


SYSTEM, TOOLS, USER = (
    Segment(role=role, tokens=2, key=role) for role in ("system", "tools", "user")
)


@pytest.mark.parametrize(
    ("turns", "off"),
    [
        ([turn(SYSTEM, TOOLS, USER), turn(USER, SYSTEM, USER)], 0),
        ([turn(SYSTEM, SYSTEM, TOOLS, TOOLS, USER)], 0),
        ([turn(TOOLS, USER)], 0),
        ([turn(TOOLS, SYSTEM, USER), turn(USER)], 2),
        ([turn(SYSTEM, USER, TOOLS), turn(USER), turn(TOOLS, USER, keep=1)], 2),
        ([turn(SYSTEM, TOOLS, SYSTEM), turn(USER), turn(USER, keep=2)], 2),
    ],
)
def test_tools_are_expected_behind_the_leading_system_message(turns: list[Turn], off: int) -> None:
    """Where servers put them; each call of another order is
    counted, and one that keeps only what is in order is not.
    """
    assert checked(session("a", *turns)).off_order == off


def test_a_prefix_counts_as_the_beginning_of_the_context() -> None:
    assert checked(session("a", turn(USER), prefix="p")).off_order == 0
    assert checked(session("a", turn(SYSTEM, USER), prefix="p")).off_order == 1


def test_only_the_first_hundred_problems_are_kept() -> None:
    report = checked(*(session(f"s{number}", turn(output=0)) for number in range(150)))
    assert (report.problem_count, len(report.problems)) == (150, 100)


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, variant) for name in catalog.names() for variant in catalog.workload(name).variants],
    ids=str,
)
def test_every_workload_can_be_played(name: str, variant: dict[str, object]) -> None:
    report = check(catalog.trace(name, seed=7, options={**variant, "sessions": 40}))
    assert report.problems == ()
    assert report.sessions >= 40
