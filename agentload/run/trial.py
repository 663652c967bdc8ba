"""Judge one load that was tried: what its turns took, and what trouble the server had."""

import math
import re
from collections import defaultdict
from typing import Final, Literal, TypeAlias

from agentload.evidence.capacity import TwinReplay
from agentload.model import metrics
from agentload.model.record import Record
from agentload.model.rows import CallRow, SampleRow
from agentload.study.parts import Slo

WARM: Final = 0.25  # of a trial's time, left out: caches fill and queues build up
QUEUED: Final = 0.25  # of the samples with requests waiting: a single one may be between two steps
SECOND: Final = 1_000_000_000

Trouble: TypeAlias = Literal[
    "out of memory", "died", "no turns", "preempted", "queued", "errors", "slo"
]


class Trial(Record):
    """Record one load that was tried; None is what the server does not state."""

    load: float
    turns: int = 0
    within: int = 0
    failed: int = 0
    preemptions: int | None = None
    waiting_share: float | None = None
    """Share of the time with requests waiting."""
    peak_kv_usage: float | None = None
    hit_rate: float | None = None
    ideal_hit_rate: float | None = None
    """Hit rate of a cache that loses nothing that a session sent or was answered."""
    found_again: float | None = None
    """Share of a session's earlier tokens, sent or answered, that a later turn found cached."""
    output_tokens_per_s: float = 0.0
    died: str | None = None
    """Last words of a server that did not live to the end of the trial."""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    turn_ms: float | None = None
    """Latency, as in the two fields above, of the slowest turn of the share that has to hold.

    Milliseconds; None where fewer turns ended.
    """
    trouble: Trouble | None = None
    """Why the load does not hold; None: it does."""
    void: str | None = None
    """Why the trial says nothing of the server."""
    worth: float | None = None
    """How many ordinary sessions each session is worth, by a twin that played both draws."""
    error: float = 0.0
    """Half width of the interval of `worth` on the log scale; the trials of an arm share it."""
    replay: TwinReplay | None = None
    """What the twin of the arm does with its sessions."""

    @property
    def share(self) -> float:
        """Share of turns within the limits."""
        if not self.turns:
            return 0.0
        return self.within / self.turns


def broken_level(trial: Trial, share: float) -> Trouble | None:
    """Say why fewer than *share* of the turns were within the limits; None: enough were."""
    if not trial.turns:
        return "no turns"
    if trial.share >= share:
        return None
    if trial.failed > (1 - share) * trial.turns:
        return "errors"
    return "slo"


def trouble(trial: Trial, share: float) -> Trouble | None:
    """Return the worst trouble that the server was in; None: the load holds."""
    if trial.died is not None:
        if re.search("out ?of ?memory", trial.died, re.IGNORECASE):
            return "out of memory"
        return "died"
    if trial.turns and trial.preemptions:
        return "preempted"
    if trial.turns and trial.waiting_share is not None and trial.waiting_share > QUEUED:
        return "queued"
    return broken_level(trial, share)


class TrialTally:
    """Add up what a trial brings, row by row, in the order of time."""

    def __init__(
        self, slo: Slo, *, begun_ns: int, seconds: float, start: metrics.ClockStart = "released"
    ) -> None:
        """Count turns that are released after the first `WARM` of the *seconds*.

        *start* says which clock a turn has; by default that of a closed loop.
        """
        self._slo = slo
        self._clock = metrics.Clock(start)
        self._seconds = (1 - WARM) * seconds
        self._from_ns = begun_ns + round(WARM * seconds * SECOND)
        self._turns = self._within = self._failed = self._output = 0
        self._prompt = self._cached = self._ideal = 0
        self._had: dict[str, int] = {}
        self._again = self._before = 0
        self._took: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": [], "turn_ms": []}
        self._usage: float | None = None
        self._preempted: dict[str | None, list[float]] = defaultdict(list)
        self._waiting: dict[int, float] = defaultdict(float)

    def add(self, row: object) -> None:
        """Count a row, if it is a call or a sample."""
        if isinstance(row, CallRow):
            self._call(row)
        elif isinstance(row, SampleRow):
            self._sample(row)

    def trial(self, load: float, *, share: float = 0.95) -> Trial:
        """Return the trial so far; *share* is the share of turns that has to hold the limits."""
        # A server of several engines has one counter for each.
        rises = [max(counts) - min(counts) for counts in self._preempted.values()]
        return Trial(
            load=load,
            turns=self._turns,
            within=self._within,
            failed=self._failed,
            preemptions=round(sum(rises)) if rises else None,
            waiting_share=sum(value > 0 for value in self._waiting.values()) / len(self._waiting)
            if self._waiting
            else None,
            peak_kv_usage=self._usage,
            hit_rate=self._cached / self._prompt if self._prompt else None,
            ideal_hit_rate=self._ideal / self._prompt if self._prompt else None,
            found_again=self._again / self._before if self._before else None,
            output_tokens_per_s=self._output / self._seconds,
            ttft_ms=self._at_most(share, "ttft_ms"),
            tpot_ms=self._at_most(share, "tpot_ms"),
            turn_ms=self._at_most(share, "turn_ms"),
        )

    def _at_most(self, share: float, metric: str) -> float | None:
        """Return what this share of all turns took at most; a failed turn took longer."""
        took = sorted(self._took[metric])
        place = math.ceil(share * self._turns)
        if 0 < place <= len(took):
            return took[place - 1]
        return None

    def _call(self, row: CallRow) -> None:
        before = self._had.get(row.session)
        since_ns = self._clock.since_ns(row)
        if row.prompt_tokens is not None:
            self._had[row.session] = row.prompt_tokens + (row.output_tokens or 0)
        if row.prime or row.status == "stopped" or row.released_ns < self._from_ns:
            return
        self._turns += 1
        ttft_ms = metrics.ttft_ms(row, since_ns)
        turn_ms = metrics.turn_ms(row, since_ns)
        tpot_ms = metrics.tpot_ms(row)
        self._within += self._slo.holds(row.status, ttft_ms, tpot_ms, turn_ms)
        if row.status == "ok" and ttft_ms is not None and turn_ms is not None:
            self._took["ttft_ms"].append(ttft_ms)
            self._took["tpot_ms"].append(tpot_ms or 0.0)
            self._took["turn_ms"].append(turn_ms)
        self._failed += row.status != "ok"
        self._output += row.output_tokens or 0
        if row.prompt_tokens is None or row.cached_tokens is None:
            return
        self._prompt += row.prompt_tokens
        self._cached += row.cached_tokens
        kept = 0
        # A prompt that is shorter than the one before was compacted: its text is new.
        if before is not None and before <= row.prompt_tokens:
            kept = before
            self._before += before
            self._again += min(before, row.cached_tokens)
        self._ideal += max(kept, row.cached_tokens)

    def _sample(self, row: SampleRow) -> None:
        match row.name:
            case "kv_usage":
                self._usage = max(self._usage or 0.0, row.value)
            case "preemptions":
                self._preempted[row.labels].append(row.value)
            case "waiting" if row.at_ns >= self._from_ns:
                self._waiting[row.at_ns] += row.value
            case _:
                pass
