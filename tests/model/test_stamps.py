from __future__ import annotations

from agentload.model.stamps import MOST, US, stamps


def test_stamps_are_exact_to_half_a_microsecond_and_their_rounding_does_not_add_up() -> None:
    ns = [1_000_000_000 + index * 1_333 for index in range(1000)]
    packed = stamps(ns, [1] * 1000)
    assert packed is not None
    assert max(abs(there - was) for there, was in zip(packed.ns(), ns, strict=True)) <= US // 2 + 1


def test_a_silence_or_a_chunk_too_long_to_be_stored_is_stored_as_long_as_can_be() -> None:
    packed = stamps([0, (MOST["i"] + 1) * US], [1, 70_000])
    assert packed is not None
    assert (list(packed.ns()), list(packed.token_counts())) == ([0, MOST["i"] * US], [1, 65_535])
