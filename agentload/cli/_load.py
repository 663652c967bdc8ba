"""Options that say how a trace is played; `replay` and `simulate` share them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer

from agentload.cli._needs import Needs
from agentload.errors import UsageError
from agentload.model.plan import Arrivals, Budget, Burst, ClosedLoop, Load, OpenLoop, Recorded, WaitScale
from agentload.model.plan import Cache as CacheName
from agentload.model.plan import Design as DesignName
from agentload.report.read import run_id
from agentload.run.trial import Limits

Pairs = Annotated[int, typer.Option(help="Block pairs: how often each arm plays, each time on another part of the trace.")]
Design = Annotated[DesignName, typer.Option(help="Order of the arms: AB BA, all at once, or one after the other.")]
Cache = Annotated[CacheName, typer.Option(help="Prefix cache between pairs: cold (a salt each) or warm (one salt for the run).")]
Swap = Annotated[
    bool,
    typer.Option("--swap", help="Two arms on two machines change places after half of the pairs, so that no machine is taken for an arm."),
]
WaitCaps = Annotated[list[str] | None, typer.Option("--wait-cap", help="Cap one kind of wait in seconds, such as user=30.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn: order of the arms, arrivals, cancellations.")]
Slo = Annotated[str, typer.Option(help="Limits in ms that a turn must hold: ttft=2000,tpot=50,turn=30000.")]
Capacity = Annotated[
    int | None,
    typer.Option(
        help="A long run: keep this many sessions going, begun in the middle, for --duration or thrice what the KV pool takes to fill."
    ),
]
SLO = "ttft=2000,tpot=100"
NEEDS: Final[Needs] = {"cv": ("rate",), "ramp_from": ("ramp",), "burst": ("rate",)}

History: TypeAlias = Literal["fixed", "live"]
Told: TypeAlias = Callable[[int], None]
_BURST = re.compile(r"([\d.]+)x([\d.]+)/([\d.]+)")


def load(
    *,
    sessions: Annotated[
        int | None, typer.Option(help="Closed loop: keep this many sessions going instead of the trace's own starts.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Open loop: start this many sessions a second, whatever the server does.")] = None,
    cv: Annotated[float, typer.Option(help="Open loop: how unevenly sessions start; 1 is Poisson, 0 even, 3 in clusters.")] = 1.0,
    ramp: Annotated[float, typer.Option(help="Seconds in which the load rises: --rate from --ramp-from, --sessions one by one.")] = 0.0,
    ramp_from: Annotated[float, typer.Option(help="Open loop: sessions a second at the begin of the ramp.")] = 0.0,
    burst: Annotated[
        str | None, typer.Option(help="Open loop: FACTORxSECONDS/EVERY; 5x10/60 is 5 times --rate in the last 10 of every 60 seconds.")
    ] = None,
    speed: Annotated[float, typer.Option(help="Play the trace's own starts this many times as fast.")] = 1.0,
    max_in_flight: Annotated[int | None, typer.Option(help="Cap on calls in flight on each arm.")] = None,
    wait_scale: Annotated[
        list[str] | None, typer.Option("--wait-scale", help="Scale one kind of wait, such as user=0.1 (user, tool, schedule).")
    ] = None,
    wait_cap: WaitCaps = None,
    max_calls: Annotated[int | None, typer.Option(help="Budget: calls in each block.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Budget: prompt and output tokens in each block.")] = None,
    duration: Annotated[float | None, typer.Option(help="Budget: seconds for each block; nothing new is sent after that.")] = None,
    cancel_share: Annotated[float, typer.Option(help="Share of streams that are cancelled after a drawn number of tokens.")] = 0.0,
    history: Annotated[
        History, typer.Option(help="What assistant turns hold: fixed (equal bytes on every arm) or live (each arm's own answers).")
    ] = "fixed",
    retries: Annotated[
        int,
        typer.Option(help="Further attempts for a refused, reset, busy or unconnected call, after 1, 2, 4 s or Retry-After; each a row."),
    ] = 0,
) -> Load:
    """Join the options into a load. Raises UsageError where they contradict each other or are out of range."""
    if not 0 <= cancel_share <= 1:
        raise UsageError(f"--cancel-share is a share between 0 and 1, got {cancel_share:g}")
    for name, value in (("max-in-flight", max_in_flight), ("max-calls", max_calls), ("max-tokens", max_tokens), ("duration", duration)):
        if value is not None and value <= 0:
            raise UsageError(f"--{name} must be positive, got {value:g}")
    if sessions is not None and rate is not None:
        raise UsageError("--sessions (closed loop) and --rate (open loop) exclude each other")
    if speed != 1 and (sessions is not None or rate is not None):
        raise UsageError("--speed changes the trace's own starts, which --sessions and --rate replace")
    if ramp < 0 or ramp_from < 0:
        raise UsageError(f"--ramp and --ramp-from must not be negative, got {ramp:g} and {ramp_from:g}")
    if rate is None and (burst is not None or ramp_from):
        raise UsageError("--burst and --ramp-from shape an open loop", hint="--rate 0.5 --burst 5x10/60")
    if rate is None and sessions is None and ramp:
        raise UsageError("--ramp needs a load to rise to", hint="--rate 0.5 --ramp 60, or --sessions 16 --ramp 60")
    return Load(
        arrivals=_closed(sessions, ramp)
        if sessions is not None
        else _open(rate, cv=cv, ramp=ramp, ramp_from=ramp_from, burst=burst)
        if rate is not None
        else _recorded(speed),
        waits=waits(wait_scale or [], wait_cap or []),
        max_in_flight=max_in_flight,
        budget=Budget(calls=max_calls, tokens=max_tokens, seconds=duration),
        cancel_share=cancel_share,
        history=history,
        retries=retries,
    )


def with_load(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of `load` in place of its parameter of that name."""
    own, shared = signature(verb, eval_str=True), signature(load, eval_str=True).parameters
    parameters: list[Parameter] = []
    for name, each in own.parameters.items():
        parameters += shared.values() if name == "load" else [each]
    whole = own.replace(parameters=parameters)

    @wraps(verb)
    def run(*places: Any, **names: Any) -> None:  # options of many types, each checked by its own annotation
        bound = whole.bind(*places, **names)
        bound.apply_defaults()
        given = bound.arguments
        verb(load=load(**{name: given.pop(name) for name in shared}), **given)

    run.__signature__ = whole  # type: ignore[attr-defined]  # where inspect looks for it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _closed(sessions: int, ramp: float) -> Arrivals:
    if sessions < 1:
        raise UsageError(f"--sessions must be >= 1, got {sessions}")
    return ClosedLoop(sessions=sessions, ramp_s=ramp)


def _open(rate: float, *, cv: float, ramp: float, ramp_from: float, burst: str | None) -> Arrivals:
    if rate <= 0 or cv < 0:
        raise UsageError(f"--rate must be positive and --cv not negative, got {rate:g} and {cv:g}")
    return OpenLoop(rate_per_s=rate, cv=cv, ramp_s=ramp, ramp_from_per_s=ramp_from, burst=None if burst is None else _burst(burst))


def _recorded(speed: float) -> Arrivals:
    if speed <= 0:
        raise UsageError(f"--speed must be positive, got {speed:g}")
    return Recorded(speed=speed)


def _burst(text: str) -> Burst:
    found = _BURST.fullmatch(text)
    try:
        factor, seconds, every_s = (float(part) for part in found.groups()) if found else (0.0, 0.0, 0.0)
    except ValueError:
        factor = 0.0
    if not (factor > 0 and 0 < seconds < every_s):
        raise UsageError(f"--burst is FACTORxSECONDS/EVERY with fewer seconds than every, got '{text}'", hint="--burst 5x10/60")
    return Burst(factor=factor, seconds=seconds, every_s=every_s)


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


def machines(text: str) -> dict[str, float]:
    """Read `--machines`: how many times as long a step takes on each."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            found[name] = float(number or 1)
        except ValueError as error:
            raise UsageError(f"--machines takes NAME=FACTOR, got '{part.strip()}'", hint="--machines m1=1,m2=1.08") from error
        if not name or found[name] <= 0:
            raise UsageError(f"--machines takes NAME=FACTOR, got '{part.strip()}'", hint="--machines m1=1,m2=1.08")
    return found
