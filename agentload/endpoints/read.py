"""Read `--endpoints`: URLs, an arms file or some of its arms, or `emulated:PROFILE[/ARM]`.

URLs are written `a=URL,b=URL`, some arms of a file `arms.yaml/a+b`. A name
that is given again is a replica of its arm: `a=URL1,a=URL2,b=URL3,b=URL4`. An arms file
is YAML: `model`, and under `arms` a mapping for each name. A field next to `arms` holds
for all of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from agentload import documents
from agentload.endpoints.endpoint import Endpoint, checked_url, likely_url, without_credentials
from agentload.endpoints.values import value_of
from agentload.errors import EndpointError, nearest
from agentload.model.controls import replica
from agentload.model.record import Record

EXAMPLE_FILE: Final = "arms: {bf16: {url: http://127.0.0.1:8000/v1}}"
KNOWN: Final = (
    frozenset(each.name for each in fields(Endpoint)) - {"name", "profile", "places", "replicas"}
) | {"machines"}
EXCLUSIVE: Final = (("key_env", "key_command"), ("proxy", "proxy_env"))
EXAMPLE = "--endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1"
REPLICAS: Final = "url: [http://10.0.0.1:8000/v1, http://10.0.0.2:8000/v1]"
EMULATED = "emulated:"
YAML: Final = (".yaml", ".yml")
_TELLS_APART: Final = ("url", "launch", "model", "aliases", "extra_body", "headers", "header_env")


_NAME: Final = re.compile(r"[^/+=\x00-\x1f\x7f]{1,60}")


def read_file(
    path: Path,
    *,
    model: str | None = None,
    key_env: str | None = None,
    tokenizer: str | None = None,
) -> tuple[Endpoint, ...]:
    """Read the arms of a file. Options given here win over the file's."""
    document = documents.read(path, raises=EndpointError, missing="agentload endpoints init")
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("arms"), dict)
        or not document["arms"]
    ):
        raise EndpointError(f"{path}: 'arms' must map names to endpoints", hint=EXAMPLE_FILE)
    shared = {str(name): value for name, value in document.items() if name != "arms"}
    given: dict[str, object] = {"model": model, "key_env": key_env, "tokenizer": tokenizer}
    given = {name: value for name, value in given.items() if value is not None}
    return tuple(
        _endpoint(f"{path}: arms.{name}", str(name), shared, entry, given)
        for name, entry in document["arms"].items()
    )


def _endpoint(
    where: str, name: str, shared: Mapping[str, object], entry: object, given: Mapping[str, object]
) -> Endpoint:
    if not isinstance(entry, dict):
        raise EndpointError(
            f"{where} must be a mapping, got {type(entry).__name__}",
            hint="url: http://127.0.0.1:8000/v1",
        )
    own = {str(key): value for key, value in entry.items()}
    merged = {**_without_rivals(shared, own), **own}
    merged = {**_without_rivals(merged, given), **given}
    if unknown := sorted(set(merged) - KNOWN):
        raise EndpointError(
            f"{where} has unknown field '{unknown[0]}'",
            hint=nearest(unknown[0], KNOWN, otherwise=f"known: {', '.join(sorted(KNOWN))}"),
        )
    if (machines := merged.pop("machines", None)) is not None:
        return _on_machines(where, name, merged, machines)
    if isinstance(merged.get("url"), list):
        return _replicated(where, name, merged, merged["url"])
    if merged.get("url") is None:
        raise EndpointError(f"{where} has no 'url'", hint="url: http://127.0.0.1:8000/v1")
    for one, other in EXCLUSIVE:
        if merged.get(one) is not None and merged.get(other) is not None:
            raise EndpointError(f"{where} has both '{one}' and '{other}'", hint="leave one out")
    _check_name(name, where)
    values = {
        field: value_of(field, value, f"{where}.{field}")
        for field, value in merged.items()
        if value is not None
    }
    # each value was checked for its field
    return Endpoint(name=name, **values)  # type: ignore[arg-type]


def _on_machines(where: str, name: str, merged: Mapping[str, object], machines: object) -> Endpoint:
    """Read an arm that has a server on several machines: a URL each, or what else differs there."""
    hint = "machines: {m1: http://10.0.0.1:8000/v1, m2: http://10.0.0.2:8000/v1}"
    if not isinstance(machines, dict) or len(machines) < 2:
        raise EndpointError(f"{where}.machines must map two names or more to URLs", hint=hint)
    if "url" in merged or "machine" in merged:
        raise EndpointError(
            f"{where} has both 'machines' and '{'url' if 'url' in merged else 'machine'}'",
            hint="leave one out",
        )
    own = {
        str(machine): {"url": each} if isinstance(each, str) else each
        for machine, each in machines.items()
    }
    places = tuple(
        _endpoint(f"{where}.machines.{each}", name, {**merged, "machine": each}, entry, {})
        for each, entry in own.items()
    )
    return replace(places[0], places=places)


def _replicated(
    where: str,
    name: str,
    merged: Mapping[str, object],
    listed: Any,  # noqa: ANN401  # a list of whatever YAML holds
) -> Endpoint:
    """Read an arm of several servers at once: a URL each, or what else differs there."""
    own = [each if isinstance(each, dict) else {"url": each} for each in listed]
    if not own or not all(isinstance(each.get("url", ""), str) for each in own):
        raise EndpointError(f"{where}.url must list a URL for each replica", hint=REPLICAS)
    for taken, why in (
        ("machine", "each replica is a machine of its own"),
        ("launch", "replicas run already"),
    ):
        if taken in merged or any(taken in each for each in own):
            raise EndpointError(
                f"{where} has both '{taken}' and a list of URLs", hint=f"leave '{taken}' out: {why}"
            )
    shared = {field: value for field, value in merged.items() if field != "url"}
    made = [
        _endpoint(f"{where}.url[{place}]", name, shared, each, {}) for place, each in enumerate(own)
    ]
    return _of_replicas(made)


def _of_replicas(made: Sequence[Endpoint]) -> Endpoint:
    """Return an arm with its replicas numbered in order; a single endpoint unchanged."""
    numbered = tuple(
        replace(each, machine=replica(number)) for number, each in enumerate(made, start=1)
    )
    if len(made) > 1:
        return replace(numbered[0], replicas=numbered)
    return made[0]


def _without_rivals(outer: Mapping[str, object], inner: Mapping[str, object]) -> dict[str, object]:
    """Leave out fields of *outer* whose rival in EXCLUSIVE *inner* has."""
    said = {
        rival
        for pair in EXCLUSIVE
        for name, rival in (pair, pair[::-1])
        if inner.get(name) is not None
    }
    return {name: value for name, value in outer.items() if name not in said}


class Emulated(Record):
    """Servers of a shipped profile, to be started for the run."""

    profile: str
    arms: tuple[str, ...]
    """Empty: all that the profile has."""


def read(
    text: str, *, model: str | None = None, key_env: str | None = None, tokenizer: str | None = None
) -> tuple[Endpoint, ...] | Emulated:
    """Read what *text* names; options given here replace those of a file."""
    if text.startswith(EMULATED):
        profile, _, arm = text.removeprefix(EMULATED).partition("/")
        return Emulated(profile=profile, arms=tuple(filter(None, arm.split("+"))))
    if is_arms_file(text):
        file, names = _divided(text)
        return _apart(
            _named(
                file,
                read_file(Path(file), model=model, key_env=key_env, tokenizer=tokenizer),
                names,
            )
        )
    arms: dict[str, list[Endpoint]] = {}
    for position, part in enumerate(text.split(",")):
        try:
            found = _inline(part.strip(), position)
        except EndpointError as error:
            if "://" in part:
                raise
            raise EndpointError(error.message, hint=_with_schemes(text)) from error
        if found.name in arms and not part.strip().startswith(f"{found.name}="):
            raise EndpointError(f"two endpoints are called '{found.name}'", hint=EXAMPLE)
        arms.setdefault(found.name, []).append(
            replace(found, model=model, key_env=key_env, tokenizer=tokenizer)
        )
    return _apart(tuple(map(_of_replicas, arms.values())))


def _with_schemes(text: str) -> str:
    """Return endpoints as they were typed, each as a whole URL."""
    parts = (part.strip().rpartition("=") for part in without_credentials(text).split(","))
    return ",".join(
        f"{name}{mark}{url if '://' in url else likely_url(url)}" for name, mark, url in parts
    )


def only(text: str, names: Sequence[str]) -> str:
    """Return *text* cut down to the arms of these names, for `--endpoints`."""
    if text.startswith(EMULATED):
        return f"{text.partition('/')[0]}/{'+'.join(names)}"
    if is_arms_file(text):
        return f"{_divided(text)[0]}/{'+'.join(names)}"
    parts = [part.strip() for part in text.split(",")]
    named = [(_inline(part, position).name, part) for position, part in enumerate(parts)]
    return ",".join(
        part if part.startswith(f"{name}=") else f"{name}={part}"
        for name, part in named
        if name in names
    )


def is_arms_file(text: str) -> bool:
    """Return whether *text* names an arms file, or some arms of one."""
    return "=" not in text and _divided(text)[0].endswith(YAML) and not text.startswith(EMULATED)


def arms_file(text: str) -> Path:
    """Return the arms file that *text* names, or names some arms of."""
    return Path(_divided(text)[0])


def _divided(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `arms.yaml/a+b` into the file and the names of arms; () means all arms."""
    file, _, names = text.rpartition("/")
    some = file.endswith(YAML) and not text.endswith(YAML)
    if some:
        return (file, tuple(names.split("+")))
    return (text, ())


def _named(file: str, found: tuple[Endpoint, ...], names: Sequence[str]) -> tuple[Endpoint, ...]:
    known = [each.name for each in found]
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise EndpointError(f"{file} has no arm '{missing}'", hint=f"it has: {', '.join(known)}")
    return tuple(each for each in found if not names or each.name in names)


def _inline(part: str, position: int) -> Endpoint:
    name, mark, url = part.partition("=")
    if not mark or "://" in name:
        name, url = (f"arm{position + 1}", part)
    if not url:
        raise EndpointError(
            f"endpoint {position + 1} is empty: '{without_credentials(part)}'", hint=EXAMPLE
        )
    _check_name(name, f"endpoint {position + 1}")
    return Endpoint(name=name, url=checked_url(url, name))


def _check_name(name: str, where: str) -> None:
    """Raise EndpointError for a name that cannot be in a file's name or in `PROFILE/ARM`."""
    if not _NAME.fullmatch(name):
        raise EndpointError(
            f"{where}: an arm cannot be called {name[:60]!r}",
            hint="a name has 1 to 60 characters, none of them '/', '+' or '='",
        )


def _apart(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """Return the endpoints; raise EndpointError if two of them are one server.

    Each would find in the cache what the other left there.
    """
    for one, other in combinations([server for each in endpoints for server in each.servers], 2):
        if all(getattr(one, name) == getattr(other, name) for name in _TELLS_APART):
            if one.name == other.name:
                said = (
                    f"{one.machine} and {other.machine} of {one.name} are one server: "
                    f"{one.shown_url}"
                )
                raise EndpointError(said, hint="give each replica its own URL, or leave one out")
            said = f"{one.name} and {other.name} are one server: {one.shown_url}"
            raise EndpointError(
                said,
                hint=f"--aa {one.name} plays a server twice; else give each arm its own URL, "
                "model or extra_body",
            )
    return endpoints
