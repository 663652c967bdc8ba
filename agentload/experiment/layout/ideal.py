"""What a prefix cache without bounds would hit in a plan: the mark that a measured hit rate is held against."""

from __future__ import annotations

from collections import Counter
from typing import Final

from agentload.model.plan import Plan
from agentload.tracefile.reuse import BLOCK, IdealCache

MOST_CALLS: Final = 50_000  # a second's work; beyond it the figure is left out rather than waited for


def ideal_hit_rates(plan: Plan, *, block: int | None = None) -> dict[str, float]:
    """Return the share of prompt tokens that could be found, by workload: cold pairs each begin with an empty cache, warm ones share it.

    *block* are the tokens of the server's cache blocks, which are kept whole: large ones hold nothing of a short prompt.
    """
    block = block or BLOCK
    known: Counter[str] = Counter()
    total: Counter[str] = Counter()
    cache = IdealCache(block=block)
    calls = 0
    blocks = {block.index: block for block in plan.blocks}
    arm = plan.arms[0]
    for play in (play for round_ in plan.rounds for play in round_.plays if play.arm == arm and not play.warmup):
        cache = cache if plan.cache == "warm" else IdealCache(block=block)
        for session in blocks[play.block].sessions:
            calls += len(session.turns)
            if calls > MOST_CALLS:
                return {}
            for tokens, found in cache.calls(plan.header, session):
                total[session.workload] += tokens
                known[session.workload] += found
    return {workload: known[workload] / tokens for workload, tokens in sorted(total.items()) if tokens}
