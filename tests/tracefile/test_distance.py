from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.tracefile.distance import distances

SESSIONS = 40


def trace(*, factor: int = 1, sessions: int = SESSIONS) -> Trace:
    """Return sessions of three calls, each longer than the session before."""
    return Trace(
        header=Header(name="x"),
        sessions=tuple(session(number, (number + 10) * factor) for number in range(sessions)),
    )


def session(number: int, tokens: int) -> Session:
    add = (Segment(role="tool", tokens=tokens, key=f"{number}"),)
    turns = (
        Turn(add=add, output=tokens),
        Turn(add=(), output=tokens, wait="tool", wait_s=float(tokens), event="retry"),
    )
    return Session(session=f"s{number}", workload="w", start_s=float(number), turns=turns)


def test_a_trace_is_at_no_distance_from_itself() -> None:
    found = list(distances(trace(), trace()))
    assert {(each.ratio, each.verdict) for each in found} == {(1.0, "alike")}
    assert {each.field for each in found} == {"context", "output", "tool", "wait.tool"}


def test_ratios_are_of_quantiles_and_of_calls_whatever_their_event() -> None:
    found = list(distances(trace(factor=3), trace()))
    assert {(each.ratio, each.verdict) for each in found} == {(3.0, "more")}
    assert {each.verdict for each in distances(trace(), trace(factor=3))} == {"less"}


def test_what_two_halves_differ_by_is_no_distance() -> None:
    few = Trace(
        header=Header(name="x"), sessions=(session(0, 10), session(1, 100), session(2, 1_000))
    )
    found = next(
        each
        for each in distances(trace(factor=5), few)
        if each.field == "output" and each.figure == "q50"
    )
    assert (found.real, found.verdict) == (100.0, "as its halves")
    assert found.halves[0] <= found.ratio <= found.halves[1]


def test_one_session_has_no_halves() -> None:
    assert {each.halves for each in distances(trace(), trace(sessions=1))} == {(1.0, 1.0)}
