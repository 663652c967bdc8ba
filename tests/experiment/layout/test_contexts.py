from __future__ import annotations

import pytest

from agentload.errors import UsageError
from agentload.experiment.layout.contexts import lengths, sweep
from agentload.experiment.layout.plan import plan


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1k..8k", (1024, 2048, 4096, 8192)),
        ("1k..6k", (1024, 2048, 4096, 6144)),
        ("512..512", (512,)),
        ("4k, 100,1K", (100, 1024, 4096)),
    ],
)
def test_lengths_double_between_two_ends_or_are_listed(text: str, found: tuple[int, ...]) -> None:
    assert lengths(text) == found


@pytest.mark.parametrize("text", ["8k..1k", "1..2k", "much", "1k,,2k", ""])
def test_lengths_that_cannot_be_meant_are_told(text: str) -> None:
    with pytest.raises(UsageError):
        lengths(text)


def test_each_block_holds_every_length_once_in_its_own_order_and_no_content_twice() -> None:
    made = plan(sweep((1024, 2048, 4096, 8192), pairs=6, output=16, seed=1), ["a", "b"], run="r", pairs=6)
    orders = [tuple(turn.add[0].tokens for session in block.sessions for turn in session.turns) for block in made.blocks]
    assert {tuple(sorted(order)) for order in orders} == {(1024, 2048, 4096, 8192)}
    assert len(orders) == 6
    assert len(set(orders)) > 1
    keys = [turn.add[0].key for block in made.blocks for session in block.sessions for turn in session.turns]
    assert len(set(keys)) == 24
