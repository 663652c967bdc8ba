"""Describe what settles an open question, as data.

A caller that knows how the run was made turns a step into the command that takes it.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from advisor.policy import ServiceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Replay again what a failed check invalidated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePairs:
    """Replay more block pairs."""

    pairs: int  # in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Start each arm's server more often: servers differ from start to start."""

    restarts: int  # in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Let pairs take turns on more servers of each arm, which run already."""

    pairs: int  # of servers, in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Exchange the arms' machines half way through a replay, to separate machine from arm."""

    pairs: int  # in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Measure the noise floor: one arm played twice under two names."""

    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """Find how many agents one GPU carries."""

    limits: ServiceLimits | None  # within this service level
    trial_s: float  # each load is tried for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Measure latencies against context."""

    lengths: tuple[int, ...]  # tokens, the shortest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Ask paired questions."""

    lengths: tuple[int, ...]  # tokens, the shortest first
    items: int | None = None  # in all; None: one for each task, length and depth
    aa: str | None = None  # the arm that is asked twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Try on each server what a comparison rests on: its prefix cache, and its short answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrate:
    """Calibrate the scales of a quantised cache on prompts of the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmsFile:
    """Print an arms file with an arm that the run lacks, and what each is for."""

    arm: str


Step: TypeAlias = (
    Again
    | MorePairs
    | Restarts
    | Replicas
    | Swap
    | Control
    | CapacitySearch
    | Lengths
    | Questions
    | Features
    | Calibrate
    | ArmsFile
)


def without_amount(step: Step) -> tuple[Step, float]:
    """Return a step without its amount, and that amount.

    Of steps that differ in the amount alone, the largest settles all.
    """
    match step:
        case MorePairs(pairs=pairs) | Swap(pairs=pairs) | Replicas(pairs=pairs):
            return replace(step, pairs=0), pairs
        case Restarts(restarts=restarts):
            return replace(step, restarts=0), restarts
        case CapacitySearch(trial_s=seconds):
            return replace(step, trial_s=0.0), seconds
        case Questions(items=items):
            return replace(step, items=None), items or 0
        case Again() | Control() | Lengths() | Features() | Calibrate() | ArmsFile():
            return step, 0
        case _:
            assert_never(step)
