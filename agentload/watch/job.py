"""Define a job: what is replayed, when, against whom, with which budget, and what is worse."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentload.endpoints.endpoint import without_user
from agentload.errors import AgentloadError, UsageError
from agentload.model.record import Record
from agentload.run.files import resolve_paths
from agentload.study import fields
from agentload.study.change import extend
from agentload.study.document import study
from agentload.study.fields import flags
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, Request, Timeouts
from agentload.verdict.policy import Setting, check_finite, parse, read_policy
from agentload.watch.levels import NOISE
from agentload.watch.schedule import Schedule, check

Metric: TypeAlias = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[Mapping[Metric, str]] = {
    "turn_ms": "turn latency",
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
}
"""Names of the metrics for people."""
# A job becomes a lock file, a log file and a unit of systemd.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")

_FLAGS: Final = {
    flag.option: flag for kind in (Live, Replay) for flag in flags(kind) if flag.option != "--noise"
}
"""Fields of a job's study by their options; a job's own `noise` is something else."""
SLACK_S: Final = 120  # beyond the job's own limit: comparing and storing
SHOWN: Final = "agentload watch --help shows a jobs file"


def in_words(text: str) -> str:
    """Return a text, such as the name of a series, with what people call its metrics."""
    for metric, words in METRICS.items():
        text = text.replace(metric, words)
    return text


def in_fields(text: str) -> str:
    """Return what is said of a study's options as what is written in a jobs file.

    For example `--wait-cap user=5` is `load: {wait_cap_s: {user: 5}}` there.
    """
    return fields.in_fields(text, _FLAGS)


class JobBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bound one execution."""

    calls: int | None = None
    """Calls of all arms together in one execution; None: no limit.

    Each pair plays its share, on the same windows of the trace each time.
    """
    minutes: float = 60.0
    """Minutes after which the execution is stopped, and has failed."""
    usd: float | None = None
    """Cost that stops the execution as well, by the price of the GPUs."""


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say who hears of an execution: a JUnit file for continuous integration, a webhook.

    The file is written again each time.
    """

    junit: Path | None = None
    webhook_env: str | None = None
    """Environment variable that holds the URL, which is a secret."""
    always: bool = False
    """Whether to call the webhook after every execution, not only when an alarm changes."""


class Job(Record):
    """Describe one scheduled comparison."""

    name: str
    study: Replay
    """Study that is played, with its files as they lie next to the jobs file."""
    schedule: Schedule
    budget: JobBudget = msgspec.field(default_factory=JobBudget)
    setting: Setting = msgspec.field(default_factory=Setting)
    metrics: tuple[Metric, ...] = ("turn_ms",)
    """Metrics that raise alarms; the error rate is shared among them."""
    noise: float = NOISE
    """Scatter from run to run to expect until it was measured."""
    reference: str | None = None
    """Run to compare later runs with, forgetting what was before it.

    None: the first usable run of the job.
    """
    control: bool = True
    """Whether to play every arm twice until a run shows by how much equal servers differ."""
    keep_runs: int | None = None
    """Number of runs whose calls are kept; older ones keep their place in the history."""
    notify: Notify = msgspec.field(default_factory=Notify)
    spec: str = "{}"
    """Job as JSON, as it was written."""

    @property
    def endpoints(self) -> str:
        """Text that names the servers."""
        assert isinstance(self.study.servers, Live), "jobs ask servers"
        return self.study.servers.endpoints

    @property
    def traces(self) -> tuple[str, ...]:
        """Texts that name the traces."""
        return tuple(each.path for each in self.study.traces)

    def times(self, *, is_controlled: bool) -> int:
        """Return how often an execution plays each arm; its budget is multiplied by that."""
        return 2 if is_controlled else 1

    @property
    def longest_s(self) -> float:
        """Seconds that an execution may take at most, before what is in flight has ended."""
        return 60 * self.budget.minutes * self.times(is_controlled=self.control)

    @property
    def timeout_s(self) -> int:
        """Seconds after which a scheduler may give up.

        They include the delay of the scheduler, and comparing and storing.
        """
        return round(self.longest_s + self.schedule.stagger_s + SLACK_S)


def job(name: str, content: object, *, at: Path) -> Job:
    """Turn one entry of a jobs file into a job.

    Raises `AgentloadError` that names the key that is wrong.
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
        raise AgentloadError(f"{where}: {error}", hint=_section_hint(own) or SHOWN) from error
    except UsageError as error:
        raise AgentloadError(error.message, hint=error.hint or SHOWN) from error
    check(said.schedule, where=where)
    _check_numbers(said, study, where)
    return Job(
        name=name,
        study=study,
        schedule=said.schedule,
        budget=said.budget,
        setting=_setting(said.policy, at=at, where=where),
        metrics=said.metrics,
        noise=said.noise,
        reference=said.reference,
        control=said.control,
        keep_runs=said.retention.runs,
        notify=said.notify,
        spec=msgspec.json.encode(content).decode(),
    )


def _section_hint(own: object) -> str | None:
    """Say in which section a field belongs that was written outside it."""
    names = own if isinstance(own, dict) else ()
    sections = (("load", Load), ("request", Request), ("timeouts", Timeouts))
    for name in names:
        for section, kind in sections:
            if name in kind.__struct_fields__:
                return f"{name} is a field of a section: {section}: {{{name}: …}}"
    return None


def _parted(content: object) -> tuple[object, dict[str, Any]]:
    """Split an entry into the fields of the job itself and those of its study."""
    if not isinstance(content, dict):
        return content, {}
    own: dict[str, Any] = {}
    played: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for name, value in content.items():
        if name in Replay.__struct_fields__:
            played[name] = value
        elif name in Live.__struct_fields__ and name != "noise":
            asked[name] = value
        else:  # a job's own noise is the scatter to expect
            own[name] = value
    named = played.get("servers", {})
    played["servers"] = named | asked if isinstance(named, dict) else named
    return own, played


def _study(played: Mapping[str, Any], *, at: Path, where: str) -> Replay:
    """Return the study of a job, with its files as they lie next to the jobs file.

    Raises UsageError.
    """
    servers = played["servers"]
    if not isinstance(servers, dict):
        raise UsageError(f"{where}: servers: Expected `object`, got `{type(servers).__name__}`")
    if "traces" not in played:
        raise UsageError(f"{where}: Object missing required field `traces`")
    if not played["traces"]:
        raise UsageError(f"{where}: traces names at least one")
    if not servers.get("endpoints"):
        raise UsageError(f"{where}: Object missing required field `endpoints`")
    made = resolve_paths(study(played, Replay, at=where), at.parent)
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
    # the same: the job is there to report that it changed.
    return extend(made, on_dead="stop", force=True)


class _Retention(msgspec.Struct, forbid_unknown_fields=True):
    runs: int | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    schedule: Schedule
    budget: JobBudget = JobBudget()
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


def _path_next_to(at: Path, text: str) -> Path:
    """Return a path relative to the jobs file as absolute: a scheduler starts anywhere."""
    return (at.parent / text).resolve()


def _path(at: Path, text: object) -> Path:
    """Return a path that an entry names; raise TypeError for anything but text."""
    if not isinstance(text, str):
        raise TypeError(f"Expected `str | null`, got `{type(text).__name__}`")
    return _path_next_to(at, text)


def _setting(policy: str | dict[str, Any] | None, *, at: Path, where: str) -> Setting:
    match policy:
        case None:
            return Setting()
        case str():
            return read_policy(_path_next_to(at, policy))
        case dict():
            return parse(policy, at=f"{where}: policy")
