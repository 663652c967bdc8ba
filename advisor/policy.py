"""Hold the thresholds that a user may move.

They say what counts as a gain, a loss and a healthy client, and which service levels to meet.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

DecideBy: TypeAlias = Literal["gpus", "latency", "tasks"]
Metric: TypeAlias = Literal["ttft_ms", "tpot_ms", "turn_ms"]
"""A latency of one turn, on which a limit can be set."""
Compared: TypeAlias = Literal["ttft_ms", "tpot_ms", "turn_ms", "task_ms"]
"""A latency that arms are compared by: of one turn, or of the turns of a task together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """State the service level of one workload (None:
    of every workload that has none of its own).
    """

    workload: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    turn_ms: float | None = None
    share: float = 0.95  # of turns that have to hold it

    def limit(self, metric: Metric) -> float | None:
        """Return the limit on a latency."""
        limit: float | None = getattr(self, metric)
        return limit

    def limits(self) -> tuple[tuple[Metric, float], ...]:
        """Return the limits that are set, each with its latency."""
        each = ((metric, self.limit(metric)) for metric in get_args(Metric))
        return tuple((metric, limit) for metric, limit in each if limit is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Hold every threshold of a decision, with the reason for its default."""

    # A switch costs a roll-out and a risk, and nobody notices a turn that is less than 3% shorter.
    min_change: float = 0.03
    # Each turn alike, each second alike, or both: where one kind of
    # turn wins and another loses, only the user knows which counts.
    counts: Literal["both", "turns", "time"] = "both"
    # What arms within the service level are compared by; None: GPUs where a level and a peak are
    # given, for that is what they cost, and turn latency otherwise; tasks: task latency.
    decide_by: DecideBy | None = None
    # Three points of 100: the smallest loss that some 1,400 paired
    # items can exclude at 10% discordance (docs/statistics.md).
    accuracy_margin: float = 0.03
    # Ten percent more agents per GPU saves one GPU in ten; less vanishes in whole GPUs.
    min_capacity_gain: float = 0.10
    # Family-wise, two-sided, over the gates of one verdict.
    alpha: float = 0.05
    # The run is looked at again and again by a plan that was made
    # before it began: each look spends its own small part of alpha.
    planned_looks: bool = False
    # What a start of a server, or the machine it got, adds to its latencies: standard
    # deviation of the log, for each arm. Public reports of equal starts scatter by 0.5 to
    # 1.5% (docs/statistics.md); whole modes, of 20% and more, are found and not averaged.
    start_spread: float = 0.015
    # What a place in the order may add to the second of two equal
    # copies on one server, before an A/A control has measured it.
    position_spread: float = 0.005
    # More calls than this beyond the lengths that were timed, or asked
    # at, and the verdict holds up to there alone: one in twenty is seen.
    max_untested_share: float = 0.05
    # And more of the tokens, which are what a server
    # works on: a few long calls may be most of its load.
    max_untested_tokens: float = 0.10
    # A pool that was full for less than half of the run was not what limited it.
    min_filled_share: float = 0.50
    # Working set over pool above which cached contexts start
    # to fall out; blocks and salts take the rest of the room.
    capacity_binds_at: float = 0.80
    # MLPerf's range for generated tokens against the
    # reference: a model that stops early looks fast.
    length_low: float = 0.90
    length_high: float = 1.10
    # Our own delay before a request is on the wire; the smallest TTFT of interest is some 20 ms.
    max_send_lag_ms: float = 5.0
    # A stalled loop sends late for as long as it stalls; kernel stamps hide nothing of that.
    max_loop_stall_ms: float = 250.0
    # Chunks that share a stamp blur gaps; one read in twenty moves no p95.
    max_coalesced_share: float = 0.05
    # Turns lost on one arm more than on the other: the survivors are the short ones.
    max_dropped_difference: float = 0.02
    # Turns lost on either arm: with one in twenty gone, what
    # is compared is another load than the one that was sent.
    max_dropped_share: float = 0.05
    slos: tuple[ServiceLimits, ...] = ()

    def decider(self, peak_agents: int | None) -> DecideBy:
        """Return what arms within the level are compared by; no GPUs where no peak is known."""
        if self.decide_by == "tasks":
            return "tasks"
        if peak_agents is None:
            return "latency"
        return self.decide_by or ("gpus" if self.slos else "latency")

    def slo(self, workload: str | None) -> ServiceLimits | None:
        """Return the service level of *workload*: its own, else the one for all."""
        own = next((each for each in self.slos if each.workload == workload), None)
        return own or next((each for each in self.slos if each.workload is None), None)
