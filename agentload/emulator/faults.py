"""Read a script of faults: which request meets which fault, and what befalls the server.

```yaml
faults:
  - {kind: busy, status: 429, retry_after_s: 2, every: 10}
  - {kind: cut, after_tokens: 20, share: 0.05}
  - {kind: neighbour, from_s: 60, until_s: 120, factor: 1.5}
```

This module only decides which faults strike; whoever serves the engine carries them out.
Equal seeds give equal faults.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Final, TypeAlias, assert_never, get_args

from msgspec import Meta

from agentload import documents
from agentload.emulator.profile import ComplaintError, build, mapping
from agentload.errors import ProfileError
from agentload.model.profile import ArmProfile, Episode, Figure, Many, Number, Share
from agentload.model.record import Record


class Some(Record):
    """Select the requests that a fault meets: those that fit every condition given.

    Requests are numbered from 1.
    """

    every: Many | None = None
    """The n-th request, the 2n-th, and so on."""
    only: Many | None = None
    """Only the request with this number."""
    share: Share | None = None
    """Share of requests, drawn at random."""
    from_s: Figure = 0.0
    """Seconds since the first request."""
    until_s: Figure | None = None


class Busy(Some):
    """Decline the request: 429 or 503, with how long to wait."""

    status: Annotated[int, Meta(ge=400, le=599)] = 503
    retry_after_s: Figure | None = None


class Cut(Some):
    """Close the connection in mid-stream: no finish reason, no end mark."""

    after_tokens: Number = 1


class Stall(Some):
    """Fall silent in mid-stream, for a while or for ever."""

    after_tokens: Number = 1
    seconds: Figure | None = None


class Trickle(Some):
    """Send the answer byte by byte, as a slow loris does to a server."""

    ms_per_byte: Figure = 100.0


class InBand(Some):
    """Send an error inside the stream, under HTTP 200, and end the stream properly.

    vLLM does so when its engine dies.
    """

    after_tokens: Number = 0
    message: str = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Crash(Some):
    """Kill the server in mid-stream; it comes back after `down_s`, or never (None)."""

    after_tokens: Number = 1
    down_s: Figure | None = None


class Restart(Record):
    """Restart the server at some time: it loses all calls and its cache, and is down."""

    at_s: Figure
    down_s: Figure = 0.0


class OutOfMemory(Record):
    """Lose every running call once the KV cache holds this many tokens at a time."""

    tokens: Many


class WrongDtype(Record):
    """Run another arm of the profile under this one's name, as when a flag was lost."""

    really: str


class Drift(Record):
    """Get slower with time, as a machine does that heats up."""

    per_hour: Figure


class Neighbour(Record):
    """Be slower for a while, because somebody else uses the machine."""

    from_s: Figure
    until_s: Figure
    factor: Annotated[float, Meta(ge=1e-3, le=1e3)]


OfRequest: TypeAlias = Busy | Cut | Stall | Trickle | InBand | Crash
OfServer: TypeAlias = Restart | OutOfMemory
OfArm: TypeAlias = WrongDtype | Drift | Neighbour
Fault: TypeAlias = OfRequest | OfServer | OfArm

KINDS: Final[Mapping[str, type[Fault]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind
    for kind in (*get_args(OfRequest), *get_args(OfServer), *get_args(OfArm))
}
"""Faults by the name of their class in a script: `in_band`, `out_of_memory`."""


def parse(text: str, *, name: str) -> tuple[Fault, ...]:
    """Parse a script of faults; raise ProfileError with the place and what was expected."""
    hint = f"known faults: {', '.join(KINDS)}"
    found = documents.parse(text, at=name, raises=ProfileError, hint=hint)
    try:
        if (
            not isinstance(found, Mapping)
            or set(found) != {"faults"}
            or not isinstance(found["faults"], list)
        ):
            raise ComplaintError("", "a mapping with one list, 'faults', is expected")
        return tuple(_fault(item, f"faults[{index}]") for index, item in enumerate(found["faults"]))
    except ComplaintError as error:
        raise ProfileError(f"{name}: {error}", hint=hint) from error


def faults_of_request(
    faults: tuple[Fault, ...], *, seed: int, number: int, at_s: float
) -> tuple[OfRequest, ...]:
    """Return the faults of the *number*-th request, sent *at_s* seconds after the first."""
    return tuple(
        fault
        for index, fault in enumerate(faults)
        if isinstance(fault, OfRequest)
        and _fits(fault, number, at_s)
        and _is_drawn(fault, f"{seed}:{index}:{number}")
    )


def faulty_arm(
    faults: tuple[Fault, ...], arm: ArmProfile, *, stand_ins: Sequence[ArmProfile] = ()
) -> ArmProfile:
    """Return the arm as its faults make it.

    It is slower for a while or with time, or is one of the *stand_ins* under this arm's name.
    """
    for fault in faults:
        match fault:
            case WrongDtype(really=really):
                arm = replace(_named(stand_ins, really), name=arm.name)
            case Drift(per_hour=per_hour):
                arm = replace(
                    arm,
                    noise=replace(arm.noise, drift_per_hour=arm.noise.drift_per_hour + per_hour),
                )
            case Neighbour(from_s=from_s, until_s=until_s, factor=factor):
                episode = Episode(from_s=from_s, until_s=until_s, factor=factor)
                arm = replace(
                    arm, noise=replace(arm.noise, episodes=(*arm.noise.episodes, episode))
                )
            case (
                Busy()
                | Cut()
                | Stall()
                | Trickle()
                | InBand()
                | Crash()
                | Restart()
                | OutOfMemory()
            ):
                pass  # whoever serves the arm carries these out
            case _:
                assert_never(fault)
    return arm


def _fits(some: Some, number: int, at_s: float) -> bool:
    return (
        (some.every is None or number % some.every == 0)
        and (some.only is None or number == some.only)
        and some.from_s <= at_s
        and (some.until_s is None or at_s < some.until_s)
    )


def _is_drawn(some: Some, key: str) -> bool:
    if some.share is None:
        return True
    return int.from_bytes(blake2b(key.encode(), digest_size=6).digest(), "big") < some.share * (
        1 << 48
    )


def _named(arms: Sequence[ArmProfile], name: str) -> ArmProfile:
    for arm in arms:
        if arm.name == name:
            return arm
    known = ", ".join(arm.name for arm in arms) or "none"
    raise ProfileError(
        f"no arm '{name}' to run behind another's name: there is {known}",
        hint="wrong_dtype: {really: ARM}",
    )


def _fault(value: object, at: str) -> Fault:
    value = mapping(value, at)
    kind = KINDS.get(str(value.get("kind")))
    if kind is None:
        raise ComplaintError(f"{at}.kind", f"no such fault: there are {', '.join(KINDS)}")
    return build(kind, {key: item for key, item in value.items() if key != "kind"}, at)
