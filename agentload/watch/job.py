"""A job: what is replayed on a schedule, against whom, within which budget, and what counts as worse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from agentload.builtin import HERE, find
from agentload.endpoints.read import is_arms_file
from agentload.endpoints.urls import without_user
from agentload.errors import AgentloadError
from agentload.model.plan import Arrivals, ClosedLoop, Load, OpenLoop, Recorded, WaitScale
from agentload.report.policy import Setting, check_finite, parse, read_policy
from agentload.watch.levels import NOISE
from agentload.watch.schedule import Schedule, check

Metric: TypeAlias = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
# It becomes a file name, a systemd unit and a Kubernetes object.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")

SHOWN: Final = "agentload watch --help shows a jobs file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bound one execution."""

    calls: int | None = None
    """On all arms together: the trace is cut behind the last whole session that fits, the same one each time."""
    minutes: float = 60.0
    """The execution is stopped then, and has failed."""
    usd: float | None = None
    """What the servers may cost meanwhile, by the price of their GPUs; stopped then as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Say who hears of an execution: files that are written anew each time, and a webhook."""

    digest: Path | None = None
    junit: Path | None = None
    prometheus: Path | None = None
    webhook_env: str | None = None
    """Environment variable that holds the URL: it is a secret."""
    always: bool = False
    """Call the webhook after every execution, not only when an alarm is raised or closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One scheduled comparison."""

    name: str
    traces: tuple[str, ...]
    endpoints: str
    schedule: Schedule
    model: str | None = None
    api_key_env: str | None = None
    pairs: int = 6
    load: Load = field(default_factory=Load)
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    setting: Setting = field(default_factory=Setting)
    metrics: tuple[Metric, ...] = ("turn_ms",)
    """Those that raise alarms; the error rate is shared among them."""
    noise: float = NOISE
    """Run-to-run scatter to expect until it was measured."""
    reference: str | None = None
    """Run to hold later ones against, and to forget what was before it; the job's first usable run when None."""
    control: bool = True
    """Play every arm twice where no run shows yet what equals differ by: that much is no change."""
    keep_runs: int | None = None
    """Delete calls of older runs; their place in the history stays."""
    notify: Notify = field(default_factory=Notify)
    folder: Path = HERE
    """Where the jobs file lies: its paths, and names of traces, are those there."""
    spec: str = "{}"
    """The job as JSON, as it was written."""

    def times(self, *, is_controlled: bool) -> int:
        """Return how often an execution plays each arm: its budget is as many times as large."""
        return 2 if is_controlled else 1

    @property
    def longest_s(self) -> float:
        """Return how long an execution may take at most, before what is in flight has ended."""
        return 60 * self.budget.minutes * self.times(is_controlled=self.control)


def job(name: str, content: object, *, at: Path) -> Job:
    """Turn one entry of a jobs file into a job; raise `AgentloadError` that names the key that is wrong."""
    where = f"{at}: job '{name}'"
    if not NAME.fullmatch(name):
        raise AgentloadError(f"{where}: a name has small letters, digits and hyphens, at most 52", hint="such as nightly-rag")
    check_finite(content, at=where, hint=SHOWN)
    try:
        said = msgspec.convert(content, _Entry)
    except msgspec.ValidationError as error:
        raise AgentloadError(f"{where}: {error}", hint=SHOWN) from error
    if without_user(said.endpoints) != said.endpoints:
        raise AgentloadError(
            f"{where}: endpoints holds a password, and jobs are stored", hint="name an arms file, with key_env or header_env"
        )
    schedule = Schedule(cron=said.schedule.cron, time_zone=said.schedule.time_zone, stagger_s=said.schedule.stagger_s)
    check(schedule, where=where)
    _check_numbers(said, where)
    return Job(
        name=name,
        traces=tuple(_trace(at, each) for each in said.traces),
        endpoints=str(beside(at, said.endpoints)) if is_arms_file(said.endpoints) else said.endpoints,
        schedule=schedule,
        model=said.model,
        api_key_env=said.api_key_env,
        pairs=said.pairs,
        load=_load(said.load),
        seed=said.seed,
        budget=Budget(calls=said.budget.calls, minutes=said.budget.minutes, usd=said.budget.usd),
        setting=_setting(said.policy, at=at, where=where),
        metrics=tuple(said.metrics),
        noise=said.noise,
        reference=said.reference,
        control=said.control,
        keep_runs=said.retention.runs,
        notify=_notify(said.notify, at),
        folder=at.parent,
        spec=msgspec.json.encode(content).decode(),
    )


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Schedule(_Strict):
    cron: str
    time_zone: str = "UTC"
    stagger_s: float = 0.0


class _Budget(_Strict):
    calls: int | None = None
    minutes: float = 60.0
    usd: float | None = None


class _Wait(_Strict):
    scale: float = 1.0
    cap_s: float | None = None


class _Load(_Strict):
    speed: float = 1.0
    sessions: int | None = None
    rate_per_s: float | None = None
    max_in_flight: int | None = None
    waits: dict[Literal["tool", "user", "schedule"], _Wait] = {}  # msgspec copies a default


class _Retention(_Strict):
    runs: int | None = None


class _Notify(_Strict):
    digest: str | None = None
    junit: str | None = None
    prometheus: str | None = None
    webhook_env: str | None = None
    always: bool = False


class _Entry(_Strict):
    traces: list[str]
    endpoints: str
    schedule: _Schedule
    model: str | None = None
    api_key_env: str | None = None
    pairs: int = 6
    load: _Load = msgspec.field(default_factory=_Load)
    seed: int = 0
    budget: _Budget = msgspec.field(default_factory=_Budget)
    policy: str | dict[str, Any] | None = None
    metrics: list[Metric] = msgspec.field(default_factory=lambda: ["turn_ms"])
    noise: float = NOISE
    reference: str | None = None
    control: bool = True
    retention: _Retention = msgspec.field(default_factory=_Retention)
    notify: _Notify = msgspec.field(default_factory=_Notify)


def _check_numbers(said: _Entry, where: str) -> None:
    wrong = {
        "traces names at least one": not said.traces,
        "metrics names at least one, each once": not said.metrics or len(set(said.metrics)) < len(said.metrics),
        "pairs must be >= 3: fewer have no interval": said.pairs < 3,
        "budget.calls must be >= 1": said.budget.calls is not None and said.budget.calls < 1,
        "budget.minutes must be positive": said.budget.minutes <= 0,
        "budget.usd must be positive": said.budget.usd is not None and said.budget.usd <= 0,
        "noise must be positive": said.noise <= 0,
        "retention.runs must be >= 2: the reference and the latest": said.retention.runs is not None and said.retention.runs < 2,
        "load.speed must be positive": said.load.speed <= 0,
        "load.rate_per_s must be positive": said.load.rate_per_s is not None and said.load.rate_per_s <= 0,
        "load.sessions and load.max_in_flight must be >= 1": any(
            each is not None and each < 1 for each in (said.load.sessions, said.load.max_in_flight)
        ),
        "load.waits must not be negative": any(min(each.scale, each.cap_s or 0.0) < 0 for each in said.load.waits.values()),
        "load has sessions or rate_per_s, not both": said.load.sessions is not None and said.load.rate_per_s is not None,
    }
    found = next((text for text, is_wrong in wrong.items() if is_wrong), None)
    if found is not None:
        raise AgentloadError(f"{where}: {found}", hint=SHOWN)


def beside(at: Path, text: str) -> Path:
    """Return a path of the jobs file, which is relative to it: a scheduler starts anywhere."""
    return (at.parent / text).resolve()


def _trace(at: Path, text: str) -> str:
    """Return a trace that lies beside the jobs file by its absolute path, any other by its name."""
    try:
        found = find("traces", text, within=at.parent)
    except AgentloadError:  # the execution says so
        return text
    return str(found.resolve()) if found.is_relative_to(at.parent) else text


def _load(said: _Load) -> Load:
    arrivals: Arrivals = Recorded(speed=said.speed)
    if said.sessions is not None:
        arrivals = ClosedLoop(sessions=said.sessions)
    elif said.rate_per_s is not None:
        arrivals = OpenLoop(rate_per_s=said.rate_per_s)
    waits: Mapping[str, WaitScale] = {kind: WaitScale(scale=each.scale, cap_s=each.cap_s) for kind, each in said.waits.items()}
    return Load(arrivals=arrivals, waits=waits, max_in_flight=said.max_in_flight)


def _setting(policy: str | dict[str, Any] | None, *, at: Path, where: str) -> Setting:
    match policy:
        case None:
            return Setting()
        case str():
            return read_policy(beside(at, policy))
        case dict():
            return parse(policy, at=f"{where}: policy")


def _notify(said: _Notify, at: Path) -> Notify:
    def path(text: str | None) -> Path | None:
        return None if text is None else beside(at, text)

    return Notify(
        digest=path(said.digest),
        junit=path(said.junit),
        prometheus=path(said.prometheus),
        webhook_env=said.webhook_env,
        always=said.always,
    )
