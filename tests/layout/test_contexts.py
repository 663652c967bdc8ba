from __future__ import annotations

from agentload.layout.plan import plan
from agentload.layout.traces import sweep


def test_each_block_holds_every_length_once_in_its_own_order_and_no_content_twice() -> None:
    made = plan(sweep((1024, 2048, 4096, 8192), pairs=6, output=16, seed=1), ["a", "b"], run="r", pairs=6)
    orders = [tuple(turn.add[0].tokens for session in block.sessions for turn in session.turns) for block in made.blocks]
    assert {tuple(sorted(order)) for order in orders} == {(1024, 2048, 4096, 8192)}
    assert len(orders) == 6
    assert len(set(orders)) > 1
    keys = [turn.add[0].key for block in made.blocks for session in block.sessions for turn in session.turns]
    assert len(set(keys)) == 24
