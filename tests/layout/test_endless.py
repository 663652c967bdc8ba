from __future__ import annotations

from agentload.layout.long_run import Repeated
from agentload.model.trace import Header, Segment, Session, Trace, Turn


def test_each_round_is_new_content_and_shares_within_itself_what_was_shared() -> None:
    def session(name: str, *keys: str | tuple[int, int]) -> Session:
        add = tuple(Segment(role="user", tokens=128, key=key) for key in keys)
        return Session(session=name, workload="w", start_s=0.0, turns=(Turn(add=add, output=1),))

    trace = Trace(header=Header(name="t"), sessions=(session("s0", (7, 2), "own"), session("s1", (7, 2), "other")))
    played = [[part.key for part in each.turns[0].add] for each in Repeated(trace, 3)]
    shared, texts = [keys[0] for keys in played], [keys[1] for keys in played]
    assert shared[::2] == shared[1::2]
    assert len(set(shared)) == 3
    assert texts == ["own", "other", "own#1", "other#1", "own#2", "other#2"]
