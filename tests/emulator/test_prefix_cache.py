from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentload.emulator.calls import Run
from agentload.emulator.pool import KvPool, Lease
from agentload.kvmath.layout import BlockTable, Layout
from tests.emulator.blockwise import BlockwisePool, Held

RUNS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=6)


class Call:
    def __init__(self, content: tuple[Run, ...], fast: Lease, slow: Held) -> None:
        self.content = content
        self.prompt = sum(tokens for _, tokens in content)
        self.fast = fast
        self.slow = slow
        self.done = fast.mark.position * 4
        self.generated = 0


class PoolsAgree(RuleBasedStateMachine):
    """Drive both pools with the life of calls: they must hit, hold and evict the same blocks."""

    @initialize(capacity=st.integers(12, 40))
    def build(self, capacity: int) -> None:
        layout = Layout(page_bytes=1, tables=(BlockTable(kind="full", count=1, block_tokens=4),))
        self.fast = KvPool(pages=capacity + 1, layout=layout, caching=True)
        self.slow = BlockwisePool(capacity=capacity, block_tokens=4)
        self.calls: list[Call] = []
        self.texts: list[tuple[Run, ...]] = []

    @rule(runs=RUNS, old=st.integers(0, 50), cut=st.integers(0, 40))
    def send(self, runs: list[Run], old: int, cut: int) -> None:
        content = tuple(runs)
        if self.texts and old % 3:
            # Mostly continue an earlier context, often only a part of it, as agents do.
            base = self.texts[old % len(self.texts)]
            content = (base if cut % 2 else base[: cut % (len(base) + 1)]) + content
        tokens = sum(length for _, length in content)
        if -(-tokens // 4) > self.slow.capacity:
            return
        fast, slow = self.fast.lease(content, tokens), self.slow.lease(content, tokens)
        assert (fast is None) == (slow is None)
        if fast and slow:
            assert fast.mark.position == len(slow.keys)
            self.calls.append(Call(content, fast, slow))

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 50), chunk=st.integers(1, 30))
    def compute(self, which: int, chunk: int) -> None:
        call = self.calls[which % len(self.calls)]
        call.done = min(call.prompt, call.done + chunk)
        self.fast.computed(call.fast, call.content, call.done)
        self.slow.computed(call.slow, call.content, call.done)

    @precondition(lambda self: any(call.done == call.prompt for call in self.calls))
    @rule(which=st.integers(0, 50), tokens=st.integers(1, 9))
    def generate(self, which: int, tokens: int) -> None:
        ready = [call for call in self.calls if call.done == call.prompt]
        call = ready[which % len(ready)]
        more = -(-(call.prompt + call.generated + tokens) // 4) - -(
            -(call.prompt + call.generated) // 4
        )
        if more > self.fast.free_blocks:
            return
        call.generated += tokens
        call.fast.blocks += more
        self.fast.grow(more)
        self.slow.grow(call.slow, more)

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 50), named=st.booleans())
    def finish(self, which: int, named: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        call = self.calls.pop(which % len(self.calls))
        tokens = call.done + call.generated
        content = (*call.content, ("answer", call.generated)) if named and call.generated else None
        self.fast.release(call.fast, content, tokens)
        self.slow.release(call.slow, content, tokens)
        if call.done == call.prompt:
            self.texts.append(content or call.content)

    @invariant()
    def both_hold_the_same_blocks(self) -> None:
        assert self.fast.used_pages == self.slow.used()
        assert self.fast._cache.cached == len(self.slow.uses)
        assert self.fast._cache.pinned == sum(1 for uses in self.slow.uses.values() if uses)
        for text in self.texts:
            tokens = sum(length for _, length in text)
            kept = self.slow.keys(text, tokens)
            assert self.fast._cache.hit(text, tokens // 4)[1] == next(
                (index for index, key in enumerate(kept) if key not in self.slow.uses), len(kept)
            )


PoolsAgree.TestCase.settings = settings(stateful_step_count=60)
test_the_cache_of_runs_equals_a_queue_of_single_blocks = PoolsAgree.TestCase
