"""How well our own side kept up: what makes a run void is said before anybody reads its figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BEAT_S = 0.02
MAX_SEND_LAG_MS = 5.0  # p99; the default latency margins are some ms, and what we add to them must be far below
MAX_STALL_MS = 250.0  # one stall this long makes due calls of every session late at once
MAX_COALESCED_SHARE = 0.25  # above, gaps between chunks are the reader's as much as the server's


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Figures of one leg; the shares and quantiles over all arms."""

    calls: int
    send_lag_p50_ms: float | None
    send_lag_p99_ms: float | None
    loop_stall_max_ms: float
    coalesced_share: float | None
    cpu_share: float
    """CPU time of this process over wall time, 1 is one core."""
    stamp_sources: tuple[str, ...]
    clock_steps: int = 0
    """How often the wall clock was stepped; kernel stamps around such a moment are off."""
    void: str | None = None
    """Why the timings of this leg cannot be used, with the remedy; None when they can."""


class Monitor:
    """Watch the event loop and collect the lag of each call."""

    def __init__(self) -> None:
        self._lags_ns: list[int] = []
        self._reads = 0
        self._coalesced = 0
        self._sources: set[str] = set()
        self._stall_ns = 0
        self._is_watching = True
        self._cpu_from = time.process_time_ns()
        self._wall_from = time.monotonic_ns()

    async def beat(self) -> None:
        """Notice how late the loop wakes us, until cancelled."""
        while True:
            before, is_watched = time.monotonic_ns(), self._is_watching
            await asyncio.sleep(BEAT_S)
            late = time.monotonic_ns() - before - round(BEAT_S * 1e9)
            if is_watched and self._is_watching:
                self._stall_ns = max(self._stall_ns, late)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Take no notice of stalls meanwhile: nothing is timed, and a server that starts needs every core."""
        self._is_watching = False
        try:
            yield
        finally:
            self._is_watching = True

    def ended(self, *, lag_ns: int | None, chunks: int, coalesced: int | None, source: str) -> None:
        """Note one finished attempt."""
        if lag_ns is not None:
            self._lags_ns.append(lag_ns)
        if chunks:
            self._reads += chunks
            self._coalesced += coalesced or 0
            self._sources.add(source)

    def health(self, *, clock_steps: int = 0) -> Health:
        """Sum up, and say whether the leg is void."""
        lags = sorted(self._lags_ns)
        p50, p99 = (lags[int(q * (len(lags) - 1))] / 1e6 if lags else None for q in (0.50, 0.99))
        share = self._coalesced / self._reads if self._reads else None
        stall_ms = self._stall_ns / 1e6
        wall_ns = max(1, time.monotonic_ns() - self._wall_from)
        return Health(
            calls=len(lags),
            send_lag_p50_ms=p50,
            send_lag_p99_ms=p99,
            loop_stall_max_ms=stall_ms,
            coalesced_share=share,
            cpu_share=(time.process_time_ns() - self._cpu_from) / wall_ns,
            stamp_sources=tuple(sorted(self._sources)),
            clock_steps=clock_steps,
            void=void_reason(send_lag_p99_ms=p99, loop_stall_max_ms=stall_ms, coalesced_share=share, clock_steps=clock_steps),
        )


def void_reason(
    *, send_lag_p99_ms: float | None, loop_stall_max_ms: float, coalesced_share: float | None, clock_steps: int = 0
) -> str | None:
    """Say why timings taken this way cannot be used, or None."""
    if clock_steps:
        return f"the wall clock was stepped {clock_steps} times, and kernel stamps are wall time: let it settle before you measure"
    if send_lag_p99_ms is not None and send_lag_p99_ms > MAX_SEND_LAG_MS:
        return f"requests left {send_lag_p99_ms:.1f} ms late (p99; limit {MAX_SEND_LAG_MS:g}): lower the rate or the number of sessions"
    if loop_stall_max_ms > MAX_STALL_MS:
        return f"this process stood still for {loop_stall_max_ms:.0f} ms (limit {MAX_STALL_MS:g}): leave it a core of its own"
    if coalesced_share is not None and coalesced_share > MAX_COALESCED_SHARE:
        shared = f"{coalesced_share:.0%} of chunks came in one read with the one before (limit {MAX_COALESCED_SHARE:.0%})"
        return f"{shared}: lower the load or move the client"
    return None
