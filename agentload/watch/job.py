"""A job: what is replayed on a schedule, against
whom, within which budget, and what counts as worse.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentload.endpoints.endpoint import without_user
from agentload.errors import AgentloadError, UsageError
from agentload.run.files import located
from agentload.study.change import extended
from agentload.study.document import study
from agentload.study.kinds import Replay
from agentload.study.parts import KINDS, Live, Load, Request, Timeouts
from agentload.verdict.policy import Setting, check_finite, parse, read_policy
from agentload.watch.levels import NOISE
from agentload.watch.schedule import Schedule, check

Metric: TypeAlias = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[Mapping[Metric, str]] = {
    "turn_ms": "turn latency",
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
}
"""What people call them."""
# It becomes a file name, a systemd unit and a Kubernetes object.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")

SLACK_S: Final = 120  # beyond the job's own limit: comparing and storing
SHOWN: Final = "agentload watch --help shows a jobs file"


def worded(text: str) -> str:
    """Return a text, such as the name of a series, with what people call its metrics."""
    for metric, words in METRICS.items():
        text = text.replace(metric, words)
    return text


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bound one execution."""

    calls: int | None = None
    """On all arms together: the trace is cut behind the
    last whole session that fits, the same one each time.
    """
    minutes: float = 60.0
    """The execution is stopped then, and has failed."""
    usd: float | None = None
    """What the servers may cost meanwhile, by the price of their GPUs; stopped then as well."""


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    study: Replay
    """What is played, with its files as they lie beside the jobs file."""
    schedule: Schedule
    budget: Budget = field(default_factory=Budget)
    setting: Setting = field(default_factory=Setting)
    metrics: tuple[Metric, ...] = ("turn_ms",)
    """Those that raise alarms; the error rate is shared among them."""
    noise: float = NOISE
    """Run-to-run scatter to expect until it was measured."""
    reference: str | None = None
    """Run to hold later ones against, and to forget what
    was before it; the job's first usable run when None.
    """
    control: bool = True
    """Play every arm twice where no run shows yet what equals differ by: that much is no change."""
    keep_runs: int | None = None
    """Delete calls of older runs; their place in the history stays."""
    notify: Notify = field(default_factory=Notify)
    spec: str = "{}"
    """The job as JSON, as it was written."""

    @property
    def endpoints(self) -> str:
        """Return what names the servers."""
        assert isinstance(self.study.servers, Live), "jobs ask servers"
        return self.study.servers.endpoints

    @property
    def traces(self) -> tuple[str, ...]:
        """Return what names the traces."""
        return tuple(each.path for each in self.study.traces)

    def times(self, *, is_controlled: bool) -> int:
        """Return how often an execution plays each arm: its budget is as many times as large."""
        return 2 if is_controlled else 1

    @property
    def longest_s(self) -> float:
        """Return how long an execution may take at most, before what is in flight has ended."""
        return 60 * self.budget.minutes * self.times(is_controlled=self.control)

    @property
    def timeout_s(self) -> int:
        """Return after how long a scheduler may give up:
        its delay is in it, and comparing and storing.
        """
        return round(self.longest_s + self.schedule.stagger_s + SLACK_S)


def job(name: str, content: object, *, at: Path) -> Job:
    """Turn one entry of a jobs file into a job; raise
    `AgentloadError` that names the key that is wrong.
    """
    where = f"{at}: job '{name}'"
    if not NAME.fullmatch(name):
        raise AgentloadError(
            f"{where}: a name has small letters, digits and hyphens, at most 52",
            hint="such as nightly-rag",
        )
    check_finite(content, at=where, hint=SHOWN)
    own, played = _parted(content)
    try:
        said = msgspec.convert(own, _Entry, dec_hook=lambda _, text: _path(at, text))
        study = _study(played, at=at, where=where)
    except msgspec.ValidationError as error:
        names = own if isinstance(own, dict) else ()
        inner = next(
            (
                f"{name} is a field of a section: {part}: {{{name}: …}}"
                for name in names
                for part in _sections(name)
            ),
            SHOWN,
        )
        raise AgentloadError(f"{where}: {error}", hint=inner) from error
    except UsageError as error:
        raise AgentloadError(error.message, hint=error.hint or SHOWN) from error
    check(said.schedule, where=where)
    _check_numbers(said, study, where)
    own = {
        field: value
        for field, value in msgspec.structs.asdict(said).items()
        if field not in {"policy", "retention"}
    }
    return Job(
        name=name,
        study=study,
        setting=_setting(said.policy, at=at, where=where),
        keep_runs=said.retention.runs,
        spec=msgspec.json.encode(content).decode(),
        **own,
    )


def _sections(name: str) -> tuple[str, ...]:
    """Return the sections of a study that have a field of this name."""
    return tuple(
        part
        for part, kind in (("load", Load), ("request", Request), ("timeouts", Timeouts))
        if name in kind.__struct_fields__
    )


def _parted(content: object) -> tuple[object, dict[str, Any]]:
    """Part what is the job's own from the fields of its study."""
    if not isinstance(content, dict):
        return content, {}
    names = frozenset(Replay.__struct_fields__)
    servers = frozenset(Live.__struct_fields__) - {
        "noise"
    }  # a job's noise is the scatter to expect
    played = {name: value for name, value in content.items() if name in names}
    asked = {name: value for name, value in content.items() if name in servers}
    own = {name: value for name, value in content.items() if name not in names | servers}
    named = played.get("servers", {})
    return own, {**played, "servers": {**named, **asked} if isinstance(named, dict) else named}


def _study(played: Mapping[str, Any], *, at: Path, where: str) -> Replay:
    """Return the study of a job, with its files as they lie beside the jobs file.

    Raises UsageError.
    """
    servers, load = played["servers"], played.get("load")
    if not isinstance(servers, dict):
        raise UsageError(f"{where}: servers: Expected `object`, got `{type(servers).__name__}`")
    if not played.get("traces") or not servers.get("endpoints"):
        missing = "endpoints" if played.get("traces") else "traces"
        raise UsageError(
            f"{where}: Object missing required field `{missing}`"
            if missing not in played
            else f"{where}: traces names at least one"
        )
    if isinstance(load, dict) and isinstance(waits := load.get("waits"), dict):
        rest = {name: value for name, value in load.items() if name != "waits"}
        if waits and (others := sorted({"wait_scale", "wait_cap_s"} & rest.keys())):
            raise UsageError(
                f"{where}: load.waits and load.{others[0]} both scale or cap waits",
                hint="load: {wait_cap_s: {user: 30}}",
            )
        played = {**played, "load": {**rest, **(_waits(waits, where) if waits else {})}}
    if isinstance(load := played.get("load"), dict) and {"sessions", "rate_per_s"} & load.keys():
        # Older versions took no notice of a speed beside them.
        played = {
            **played,
            "load": {name: value for name, value in load.items() if name != "speed"},
        }
    made = located(study(played, Replay, at=where), at.parent)
    assert isinstance(made, Replay), made
    endpoints = str(servers["endpoints"])
    if without_user(endpoints) != endpoints:
        raise UsageError(
            f"{where}: endpoints holds a password, and jobs are stored",
            hint="name an arms file, with key_env or header_env",
        )
    if played.get("on_dead", "stop") != "stop":
        raise UsageError(
            f"{where}: on_dead is stop: what follows a server's death is the next execution",
            hint="leave it out",
        )
    if servers.get("force") is False:
        raise UsageError(
            f"{where}: force is true: a job measures a server that has changed, and says so",
            hint="leave it out",
        )
    # A server that is not what the arms file expects is measured all
    # the same: that it changed is what the job is there to tell.
    return extended(made, on_dead="stop", force=True)


def _waits(said: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Return the waits of a job as older versions
    wrote them, a kind at a time, as a load has them.
    """
    found: dict[str, dict[str, Any]] = {"wait_scale": {}, "wait_cap_s": {}}
    for kind, each in said.items():
        if kind not in KINDS:
            raise UsageError(
                f"{where}: load.waits: no kind of wait '{kind}'", hint=f"one of: {', '.join(KINDS)}"
            )
        if not isinstance(each, dict) or not each.keys() <= {"scale", "cap_s"}:
            raise UsageError(f"{where}: load.waits.{kind} has a scale and a cap_s")
        for name, field_of in (("scale", "wait_scale"), ("cap_s", "wait_cap_s")):
            if each.get(name) is not None:
                found[field_of][kind] = each[name]
    return found


class _Retention(msgspec.Struct, forbid_unknown_fields=True):
    runs: int | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    schedule: Schedule
    budget: Budget = Budget()
    policy: str | dict[str, Any] | None = None
    metrics: tuple[Metric, ...] = ("turn_ms",)
    noise: float = NOISE
    reference: str | None = None
    control: bool = True
    retention: _Retention = msgspec.field(default_factory=_Retention)
    notify: Notify = Notify()


def _check_numbers(said: _Entry, study: Replay, where: str) -> None:
    wrong = {
        "metrics names at least one, each once": not said.metrics
        or len(set(said.metrics)) < len(said.metrics),
        "pairs must be >= 3: fewer have no interval": study.pairs < 3,
        "`swap` exchanges the arms alone: set control: false": study.swap and said.control,
        "budget.calls must be >= 1": said.budget.calls is not None and said.budget.calls < 1,
        "budget.minutes must be positive": said.budget.minutes <= 0,
        "budget.usd must be positive": said.budget.usd is not None and said.budget.usd <= 0,
        "noise must be positive": said.noise <= 0,
        "retention.runs must be >= 2: the reference and the latest": said.retention.runs is not None
        and said.retention.runs < 2,
    }
    found = next((text for text, is_wrong in wrong.items() if is_wrong), None)
    if found is not None:
        raise AgentloadError(f"{where}: {found}", hint=SHOWN)


def beside(at: Path, text: str) -> Path:
    """Return a path of the jobs file, which is relative to it: a scheduler starts anywhere."""
    return (at.parent / text).resolve()


def _path(at: Path, text: object) -> Path:
    """Return a path that an entry names: the one kind of value in it that is not plain."""
    if not isinstance(text, str):
        raise TypeError(f"Expected `str | null`, got `{type(text).__name__}`")
    return beside(at, text)


def _setting(policy: str | dict[str, Any] | None, *, at: Path, where: str) -> Setting:
    match policy:
        case None:
            return Setting()
        case str():
            return read_policy(beside(at, policy))
        case dict():
            return parse(policy, at=f"{where}: policy")
