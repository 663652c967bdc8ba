"""Blocks that the pool has lost are read from a second tier instead of computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.emulator.calls import EngineRequest, Finished
from agentload.emulator.engine import Engine
from agentload.model.profile import ArmProfile, OffloadTier
from tests.emulator.arms import BLOCK, BYTES_PER_BLOCK, small

GIB = 1 << 30


def tiered(
    *, blocks: int = 1000, ms_per_block: float = 0.5, outlives_restarts: bool = False
) -> ArmProfile:
    """A pool of 20 blocks, before a tier of so many that takes so long to read one."""
    tier = OffloadTier(
        gib=blocks * BYTES_PER_BLOCK / GIB,
        gb_per_s=BYTES_PER_BLOCK / (ms_per_block * 1e6),
        outlives_restarts=outlives_restarts,
    )
    arm = small(blocks=20, budget=320, max_len=320)
    return replace(arm, server=replace(arm.server, offload=tier))


class Client:
    """Ask one engine, each call on an idle machine."""

    def __init__(self, arm: ArmProfile) -> None:
        self.engine = Engine(arm)
        self.now = 0
        self.calls = 0

    def asks(self, name: str, tokens: int = 160) -> tuple[float, int]:
        """Return the time to the first token of a prompt in ms, and its cached tokens."""
        self.calls += 1
        sent = self.now
        self.engine.submit(EngineRequest(f"c{self.calls}", ((name, tokens),), 1), sent)
        while (at := self.engine.next_ns()) is not None:
            for event in self.engine.advance(at):
                if isinstance(event, Finished):
                    self.now = event.at_ns + 1_000_000
                    return (event.at_ns - sent) / 1e6, event.cached_tokens
        raise AssertionError("the call did not end")

    def fills(self, *names: str) -> None:
        for name in names:
            self.asks(name, 300)


def test_a_prompt_that_the_pool_has_lost_is_read_at_the_tiers_bandwidth() -> None:
    with_tier, without = Client(tiered()), Client(small(blocks=20, budget=320, max_len=320))
    for client in (with_tier, without):
        assert client.asks("a")[1] == 0
        client.fills("b", "c")
    assert without.asks("a")[1] == 0
    read_ms, cached = with_tier.asks("a")
    assert cached == 144  # 9 of 10 blocks: the last token is always computed
    # In the pool they would cost nothing: the same prompt again.
    assert read_ms - with_tier.asks("a")[0] == pytest.approx(9 * 0.5, abs=0.001)


def test_what_the_pool_holds_is_not_read_from_the_tier() -> None:
    slow = Client(tiered(ms_per_block=1000))
    slow.asks("a")
    again_ms, cached = slow.asks("a")
    assert cached == 144
    assert again_ms < 100


def test_a_tier_that_is_full_drops_what_was_used_longest_ago() -> None:
    client = Client(tiered(blocks=40))
    client.asks("a")
    client.fills("b", "c", "d")
    assert client.asks("a")[1] == 0
    assert client.asks("d", 300)[1] == 288


def test_a_tier_without_room_for_a_block_keeps_none() -> None:
    client = Client(tiered(blocks=0))
    client.asks("a")
    client.fills("b", "c", "b")
    assert client.asks("a")[1] == 0


@pytest.mark.parametrize(("outlives", "cached"), [(True, 144), (False, 0)])
def test_a_store_outlives_a_restart_and_a_servers_own_memory_does_not(
    cached: int, *, outlives: bool
) -> None:
    client = Client(tiered(outlives_restarts=outlives))
    client.asks("a")
    client.engine.restart()
    assert client.asks("a")[1] == cached


def test_hits_in_the_tier_are_cached_tokens_but_no_hits_of_the_prefix_cache() -> None:
    client = Client(tiered())
    client.asks("a")
    client.fills("b", "c")
    before = client.engine.gauges()
    client.asks("a")
    after = client.engine.gauges()
    assert after.prefix_hits == before.prefix_hits
    assert after.prompt_tokens_cached - before.prompt_tokens_cached == 144
    assert after.kv_usage == 0.0


def test_a_preempted_call_reads_what_it_had_computed() -> None:
    arm = tiered()
    engine = Engine(replace(arm, server=replace(arm.server, max_num_seqs=2)))
    for name in "ab":
        engine.submit(EngineRequest(name, ((name, 8 * BLOCK),), 100), 0)
    done = []
    while (at := engine.next_ns()) is not None:
        done += [each for each in engine.advance(at) if isinstance(each, Finished)]
    assert sorted(each.id for each in done) == ["a", "b"]
    assert max(each.preemptions for each in done) >= 1
    assert engine.gauges().kv_usage == 0.0
