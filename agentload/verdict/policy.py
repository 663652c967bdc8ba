"""Read a policy file: thresholds, service levels, peak load and the price of a GPU.

```yaml
min_change: 0.03
accuracy_margin: 0.02
decide_by: gpus
slos:
  - {ttft_ms: 3000, share: 0.95}
  - {workload: chat, ttft_ms: 800, tpot_ms: 30}
load: {peak_agents: 42, spare_replicas: 1}
price: {usd_per_gpu_hour: 2.5, source: our contract}
```
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from advisor.policy import Policy, ServiceLimits
from agentload import documents
from agentload.errors import AgentloadError, nearest
from agentload.model.profile import Price
from agentload.model.record import Record

Made = TypeVar("Made")
SECTIONS = ("slos", "load", "price")
WITHOUT_EFFECT = ("max_foreign_share",)
"""Settings of earlier versions that never decided anything: files that have them stay readable."""
SHOWN = "`agentload advise --help` shows a policy"
DECISION: Final = "decision"
"""Probe under which `decide` writes down what it asks, and the setting it decides with."""


class UserLoad(Record):
    """State what the servers have to carry, and how a replica is built."""

    peak_agents: int | None = None
    load_growth_per_month: float | None = None
    spare_replicas: int = 0
    gpus_per_replica: int | None = None
    """GPUs of one replica; None: as the arms file or the servers say."""
    tensor_parallel: int | None = None


class Setting(Record):
    """Hold all that a user decides on beyond the run."""

    policy: Policy = field(default_factory=Policy)
    load: UserLoad = field(default_factory=UserLoad)
    price: Price | None = None
    question_pace: float | None = None
    """How much longer a further paired question takes than is assumed, where `decide` knows."""
    per_context: int = 1
    """Paired questions that `decide` asks behind one context."""
    budget_s: float | None = None
    """Seconds that `decide` was given."""
    enough_s: float | None = None
    """Seconds that pay for what the budget of `decide` did not reach, and for all before it."""
    name: str = "default"
    """Name of the policy file, for the record."""
    spelled: frozenset[str] = frozenset()
    """Options to write into commands of reports though they have the usual value.

    A defaults file here has another value.
    """


def read_policy(path: Path) -> Setting:
    """Read a policy file; raise `AgentloadError` that names the key that is wrong."""
    content = documents.read(path, hint=SHOWN)
    return parse({} if content is None else content, at=str(path))


def parse(content: object, *, at: str) -> Setting:
    """Turn a policy file's content into a setting; `at` is where it came from."""
    check_finite(content, at=at, hint=SHOWN)
    whole = _section(content, at, (*_names(Policy), *SECTIONS, *WITHOUT_EFFECT))
    for name in WITHOUT_EFFECT:
        whole.pop(name, None)
    levels = whole.pop("slos", ())
    load = whole.pop("load", {})
    price = whole.pop("price", None)
    if not isinstance(levels, list | tuple):
        raise AgentloadError(
            f"{at}: slos: expected a list", hint="slos: [{workload: chat, ttft_ms: 800}]"
        )
    slos = tuple(
        _made(ServiceLimits, each, f"{at}: slos[{index}]") for index, each in enumerate(levels)
    )
    policy = replace(_made(Policy, whole, at), slos=slos)
    peak = _made(UserLoad, load, f"{at}: load")
    if policy.decide_by == "gpus" and peak.peak_agents is None:
        raise AgentloadError(
            f"{at}: decide_by: gpus needs load.peak_agents", hint="load: {peak_agents: 400}"
        )
    return Setting(
        policy=policy,
        load=peak,
        price=None if price is None else _made(Price, price, f"{at}: price"),
        name=at,
    )


def check_finite(content: object, *, at: str, hint: str) -> None:
    """Raise `AgentloadError` that names the first number that is infinite or NaN.

    YAML has both, and every bound lets them pass.
    """
    for place, number in _numbers(content, ()):
        if not math.isfinite(number):
            raise AgentloadError(
                f"{at}: {'.'.join(place)} must be a finite number, got {number}", hint=hint
            )


def _numbers(content: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    match content:
        case float():
            yield place, content
        case dict():
            for key, each in content.items():
                yield from _numbers(each, (*place, str(key)))
        case list() | tuple():
            for index, each in enumerate(content):
                yield from _numbers(each, (*place, str(index)))
        case _:
            pass


def _made(kind: type[Made], content: object, at: str) -> Made:
    section = _section(content, at, _names(kind))
    try:
        return msgspec.convert(section, kind)
    except msgspec.ValidationError as error:
        raise AgentloadError(
            f"{at}: {str(error).replace(' - at `$.', ': `')}", hint=SHOWN
        ) from error


def _section(content: object, at: str, known: Iterable[str]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise AgentloadError(
            f"{at}: expected keys and values", hint=f"its keys: {', '.join(known)}"
        )
    names = tuple(known)
    for key in content:
        if key not in names:
            hint = nearest(str(key), names, otherwise=f"its keys: {', '.join(names)}")
            raise AgentloadError(f"{at}: unknown key '{key}'", hint=hint)
    return dict(content)


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
