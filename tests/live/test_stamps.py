from collections.abc import Callable, Iterator

from agentload.live.stamps import TRIES, StampClock


def clocks(widths: list[int], offsets: list[int]) -> tuple[Callable[[], int], Callable[[], int]]:
    """Two clocks whose readings are these many ns apart, the wall clock ahead by these offsets."""

    def monotonic() -> Iterator[int]:
        at = 0
        for width in widths:
            yield at
            yield at + width
            at += 1_000

    def wall() -> Iterator[int]:
        at = 0
        for width, offset in zip(widths, offsets, strict=True):
            yield at + width // 2 + offset
            at += 1_000

    return monotonic().__next__, wall().__next__


def test_the_narrowest_sample_gives_the_offset() -> None:
    monotonic_ns, wall_ns = clocks([900, 80, 40, 600, 50], [7_300, 7_020, 7_000, 7_250, 7_010])
    clock = StampClock(monotonic_ns=monotonic_ns, wall_ns=wall_ns)
    assert (clock.offset_ns, clock.width_ns, clock.steps) == (7_000, 40, 0)


def test_a_step_of_the_wall_clock_is_adopted_and_counted() -> None:
    monotonic_ns, wall_ns = clocks([40] * 2 * TRIES, [7_000] * TRIES + [2_007_000] * TRIES)
    clock = StampClock(monotonic_ns=monotonic_ns, wall_ns=wall_ns)
    clock.sample()
    assert (clock.offset_ns, clock.steps, clock.largest_step_ns) == (2_007_000, 1, 2_000_000)


def test_a_wide_sample_is_neither_a_step_nor_better() -> None:
    monotonic_ns, wall_ns = clocks(
        [40] * TRIES + [300_000] * TRIES, [7_000] * TRIES + [120_000] * TRIES
    )
    clock = StampClock(monotonic_ns=monotonic_ns, wall_ns=wall_ns)
    clock.sample()
    assert (clock.offset_ns, clock.width_ns, clock.steps) == (7_000, 40, 0)


def test_a_narrower_sample_refines_the_offset() -> None:
    monotonic_ns, wall_ns = clocks([400] * TRIES + [40] * TRIES, [7_150] * TRIES + [7_000] * TRIES)
    clock = StampClock(monotonic_ns=monotonic_ns, wall_ns=wall_ns)
    clock.sample()
    assert (clock.offset_ns, clock.width_ns, clock.steps) == (7_000, 40, 0)


def test_the_real_clocks_agree_with_themselves() -> None:
    clock = StampClock()
    for _ in range(20):
        clock.sample()
    assert clock.steps == 0
    assert clock.width_ns < 50_000
