"""Options that say how a trace is played; `replay` and `simulate` share them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from agentload.errors import UsageError
from agentload.experiment.capacity import Limits
from agentload.experiment.find import What
from agentload.experiment.vigil import OnDead
from agentload.model.plan import Arrivals, Budget, ClosedLoop, Load, OpenLoop, Recorded, WaitScale
from agentload.model.plan import Cache as CacheName
from agentload.model.plan import Design as DesignName
from agentload.report.read import run_id

Pairs = Annotated[int, typer.Option(help="Block pairs: how often each arm plays, each time on another part of the trace.")]
Design = Annotated[
    str, typer.Option(help="Order of the arms: interleaved (AB BA, default), parallel (all at once), or sequential (one after the other).")
]
Cache = Annotated[str, typer.Option(help="Prefix cache between pairs: cold (a salt each, default) or warm (one salt for the run).")]
Sessions = Annotated[int | None, typer.Option(help="Closed loop: keep this many sessions going instead of the trace's own starts.")]
Rate = Annotated[float | None, typer.Option(help="Open loop: start this many sessions a second, whatever the server does.")]
Cv = Annotated[float, typer.Option(help="Open loop: how bursty; 1 is Poisson, 0 even, 3 bursts.")]
Speed = Annotated[float, typer.Option(help="Play the trace's own starts this many times as fast.")]
MaxInFlight = Annotated[int | None, typer.Option(help="Cap on calls in flight on each arm.")]
WaitScales = Annotated[
    list[str] | None, typer.Option("--wait-scale", help="Scale one kind of wait, such as user=0.1 (user, tool, schedule).")
]
WaitCaps = Annotated[list[str] | None, typer.Option("--wait-cap", help="Cap one kind of wait in seconds, such as user=30.")]
MaxCalls = Annotated[int | None, typer.Option(help="Budget: calls in each block.")]
MaxTokens = Annotated[int | None, typer.Option(help="Budget: prompt and output tokens in each block.")]
Duration = Annotated[float | None, typer.Option(help="Budget: seconds for each block; nothing new is sent after that.")]
CancelShare = Annotated[float, typer.Option(help="Share of streams that are cancelled after a drawn number of tokens.")]
History = Annotated[
    str, typer.Option(help="What assistant turns hold: fixed (equal bytes on every arm, default) or live (each arm's own answers).")
]
Retries = Annotated[int, typer.Option(help="Further attempts for a refused, reset or busy call; each is a row of its own.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn: order of the arms, arrivals, cancellations.")]

Told: TypeAlias = Callable[[int], None]


def load(
    *,
    sessions: int | None,
    rate: float | None,
    cv: float,
    speed: float,
    max_in_flight: int | None,
    wait_scale: list[str] | None,
    wait_cap: list[str] | None,
    max_calls: int | None,
    max_tokens: int | None,
    duration: float | None,
    cancel_share: float,
    history: str,
    retries: int,
) -> Load:
    """Join the options into a load. Raises UsageError where they contradict each other or are out of range."""
    if history not in {"fixed", "live"}:
        raise UsageError(f"--history is fixed or live, got '{history}'")
    if not 0 <= cancel_share <= 1:
        raise UsageError(f"--cancel-share is a share between 0 and 1, got {cancel_share:g}")
    for name, value in (("max-in-flight", max_in_flight), ("max-calls", max_calls), ("max-tokens", max_tokens), ("duration", duration)):
        if value is not None and value <= 0:
            raise UsageError(f"--{name} must be positive, got {value:g}")
    return Load(
        arrivals=_arrivals(sessions=sessions, rate=rate, cv=cv, speed=speed),
        waits=waits(wait_scale or [], wait_cap or []),
        max_in_flight=max_in_flight,
        budget=Budget(calls=max_calls, tokens=max_tokens, seconds=duration),
        cancel_share=cancel_share,
        history="live" if history == "live" else "fixed",
        retries=retries,
    )


def _arrivals(*, sessions: int | None, rate: float | None, cv: float, speed: float) -> Arrivals:
    if sessions is not None and rate is not None:
        raise UsageError("--sessions (closed loop) and --rate (open loop) exclude each other")
    if sessions is not None:
        if sessions < 1:
            raise UsageError(f"--sessions must be >= 1, got {sessions}")
        return ClosedLoop(sessions=sessions)
    if rate is not None:
        if rate <= 0 or cv < 0:
            raise UsageError(f"--rate must be positive and --cv not negative, got {rate:g} and {cv:g}")
        return OpenLoop(rate_per_s=rate, cv=cv)
    if speed <= 0:
        raise UsageError(f"--speed must be positive, got {speed:g}")
    return Recorded(speed=speed)


def waits(scales: list[str], caps: list[str]) -> dict[str, WaitScale]:
    """Read `--wait-scale` and `--wait-cap`."""
    scale = dict(_pair(text, "--wait-scale") for text in scales)
    cap = dict(_pair(text, "--wait-cap") for text in caps)
    return {kind: WaitScale(scale=scale.get(kind, 1.0), cap_s=cap.get(kind)) for kind in sorted(scale.keys() | cap.keys())}


def _pair(text: str, option: str) -> tuple[str, float]:
    kind, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError as error:
        raise UsageError(f"{option} takes KIND=NUMBER, got '{text}'", hint=f"{option} user=30") from error
    if kind not in {"user", "tool", "schedule"} or value < 0:
        raise UsageError(f"{option}: kinds are user, tool and schedule, numbers are >= 0; got '{text}'", hint=f"{option} user=30")
    return kind, value


def design(text: str) -> DesignName:
    """Read `--design`."""
    match text:
        case "interleaved" | "parallel" | "sequential":
            return text
        case _:
            raise UsageError(f"--design is interleaved, parallel or sequential, got '{text}'")


def cache(text: str) -> CacheName:
    """Read `--cache`."""
    match text:
        case "cold" | "warm":
            return text
        case _:
            raise UsageError(f"--cache is cold or warm, got '{text}'")


def on_dead(text: str) -> OnDead:
    """Read `--on-dead`."""
    match text:
        case "wait" | "skip" | "stop":
            return text
        case _:
            raise UsageError(f"--on-dead is wait, skip or stop, got '{text}'")


def what(text: str) -> What:
    """Read `--find`."""
    match text:
        case "max-concurrency" | "max-rate":
            return text
        case _:
            raise UsageError(f"--find is max-concurrency or max-rate, got '{text}'")


def limits(text: str, share: float) -> Limits:
    """Read `--slo` and its share."""
    if not 0 < share <= 1:
        raise UsageError(f"--share is a share above 0 and at most 1, got {share:g}")
    named: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            named[name] = float(number)
        except ValueError as error:
            raise UsageError(f"--slo takes NAME=MS, got '{part.strip()}'", hint="--slo ttft=2000,tpot=50") from error
    unknown = sorted(named.keys() - {"ttft", "tpot", "turn"})
    if unknown:
        raise UsageError(f"--slo: no limit '{unknown[0]}'", hint="ttft, tpot (token latency) and turn are known")
    return Limits(ttft_ms=named.get("ttft"), tpot_ms=named.get("tpot"), turn_ms=named.get("turn"), share=share)


def existing_run(database: Path, run: str) -> str:
    """Return a run's name. Raises StoreError when the database does not have it."""
    return run_id(database, run)
