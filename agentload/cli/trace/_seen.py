"""What `trace show` has to say, as data: the overview, and what each arm of a profile makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentload.builtin import find
from agentload.emulator.profile import arm as arm_of
from agentload.emulator.profile import parse
from agentload.kvmath.layout import bytes_per_token
from agentload.kvmath.pool import GIB, pool_of
from agentload.model.profile import ArmProfile
from agentload.model.trace import Trace
from agentload.tracefile.load import Load, load
from agentload.tracefile.overview import Overview, overview


@dataclass(frozen=True, slots=True, kw_only=True)
class OnArm:
    """What the trace takes of one arm's KV pool."""

    arm: str
    kv_bytes_per_token: int
    """In the layers that keep every token."""
    pool_tokens: int
    hit_ratio: float
    running_gib: float
    """Most that calls hold at once, at the nominal speed."""
    live_gib: float
    """Most that sessions under way would hold if nothing were forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that is shown of a trace."""

    name: str
    seed: int
    overview: Overview
    load: Load
    arms: tuple[OnArm, ...]


def look(trace: Trace, *, profile: str | None, pools: Sequence[int]) -> Seen:
    """Sum up a trace, and hold it against the pools of a profile's arms (`NAME` or `NAME/ARM`)."""
    sized = [(arm, pool_of(arm).tokens) for arm in _arms(profile)]
    found = load(trace, pools=tuple(dict.fromkeys((*pools, *(tokens for _, tokens in sized)))))
    return Seen(
        name=trace.header.name,
        seed=trace.header.seed,
        overview=overview(trace),
        load=found,
        arms=tuple(_on_arm(arm, tokens, found) for arm, tokens in sized),
    )


def _arms(profile: str | None) -> tuple[ArmProfile, ...]:
    if profile is None:
        return ()
    name, _, wanted = profile.partition("/") if not profile.endswith((".yaml", ".yml")) else (profile, "", "")
    path = find("profiles", name)
    read = parse(path.read_text(encoding="utf-8"), name=path.stem)
    return (arm_of(read, wanted),) if wanted else read.arms


def _on_arm(arm: ArmProfile, pool_tokens: int, found: Load) -> OnArm:
    size = bytes_per_token(arm.model, arm.kv_dtype, arm.skip_layers)
    return OnArm(
        arm=arm.name,
        kv_bytes_per_token=size,
        pool_tokens=pool_tokens,
        hit_ratio=found.hits[pool_tokens],
        running_gib=max(found.running_tokens, default=0) * size / GIB,
        live_gib=max(found.live_tokens, default=0) * size / GIB,
    )
