from agentload.model.trace import Header, Role, Segment, Session, Turn, TurnRef
from agentload.tracefile.overview import fields
from agentload.tracefile.reuse import IdealCache

HEADER = Header(name="x", prefixes={"p": (Segment(role="system", tokens=100, key="sys"),)})


def said(role: Role, tokens: int, key: str) -> Segment:
    return Segment(role=role, tokens=tokens, key=key)


def test_a_sessions_lengths_counts_and_waits_are_named() -> None:
    taken = Segment(role="tool", tokens=7, key="r", source=TurnRef(session="b", turn=0))
    session = Session(
        session="a",
        workload="w",
        prefix="p",
        start_s=0.0,
        turns=(
            Turn(add=(said("user", 20, "u1"),), output=5),
            Turn(
                add=(
                    said("assistant", 5, "a1"),
                    said("tool", 30, "t1"),
                    said("tool", 10, "t2"),
                    taken,
                ),
                output=8,
                wait="tool",
                wait_s=0.5,
            ),
            Turn(
                add=(said("assistant", 8, "a2"), said("user", 4, "u2")),
                output=10,
                thinking=5,
                wait="user",
                wait_s=9.0,
            ),
            Turn(add=(said("user", 6, "ask"),), output=3, event="compact"),
            Turn(keep=1, add=(said("user", 3, "summary"), said("user", 4, "u2")), output=2),
        ),
    )
    assert list(fields(HEADER, session)) == [
        ("prefix", 100), ("first", 120), ("context", 120), ("user", 20), ("output", 5), ("output.step", 5),
        ("context", 172), ("tool", 40), ("output", 8), ("output.reply", 8), ("wait.tool", 0.5),
        ("request", 2), ("context", 184), ("user", 4), ("output", 10), ("output.reply", 10), ("thinking", 0.5), ("wait.user", 9.0),
        ("context@compact", 190), ("user@compact", 6), ("output@compact", 3), ("output.reply@compact", 3),
        ("context", 107), ("user", 3), ("output", 2), ("output.reply", 2),
        ("request", 3), ("calls", 5), ("messages", 2), ("peak", 190),
    ]  # fmt: skip


def calls(cache: IdealCache, name: str, *turns: Turn) -> list[tuple[int, int]]:
    return list(cache.calls(HEADER, Session(session=name, workload="w", prefix="p", turns=turns)))


def test_an_ideal_cache_knows_what_was_sent_before_in_whole_blocks() -> None:
    cache = IdealCache()
    grows = (
        Turn(add=(said("user", 60, "u1"),), output=5),
        Turn(add=(said("assistant", 5, "a1"), said("user", 40, "u2")), output=5),
    )
    assert calls(cache, "a", *grows) == [(160, 0), (205, 160)]
    assert calls(cache, "b", *grows) == [(160, 160), (205, 192)]


def test_a_shorter_run_of_a_known_text_is_known_and_what_follows_it_is_not() -> None:
    cache = IdealCache()
    calls(cache, "a", Turn(add=(said("user", 60, "u1"), said("user", 40, "u2")), output=5))
    assert calls(
        cache, "b", Turn(add=(said("user", 44, "u1"), said("user", 40, "u2")), output=5)
    ) == [(184, 144)]


def test_a_rewritten_history_is_new_behind_the_change() -> None:
    cache = IdealCache()
    first = Turn(add=(said("user", 60, "u1"), said("user", 40, "u2")), output=5)
    changed = Turn(keep=1, add=(said("user", 60, "other"), said("user", 40, "u2")), output=5)
    assert calls(cache, "a", first, changed) == [(200, 0), (200, 96)]
