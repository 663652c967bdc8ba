"""Read a profile from YAML text into frozen data by its type hints, and write it back.

Errors name the file, the place in it and what was expected.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar, get_args, get_type_hints

import msgspec
import yaml

from agentload import documents
from agentload.builtin import find
from agentload.errors import ProfileError, nearest
from agentload.model.profile import ArmProfile, Gpu, ModelShape, Profile, StepTime

T = TypeVar("T")
_SHARED: Final = ("server", "step", "encoder", "noise", "logprobs")
_FROM_ELSEWHERE = frozenset({"name", "profile", "gpu", "model"})
"""Fields of an arm that come from its place in the file, or from the whole profile."""


class ComplaintError(Exception):
    """A value in the file is not what it should be; says where and what is wrong."""

    def __init__(self, at: str, wrong: str) -> None:
        super().__init__(f"{at or 'top level'}: {wrong}")


def build(cls: type[T], value: object, at: str) -> T:
    """Build a dataclass from a mapping of its fields alone; raise ComplaintError if it is none."""
    _refuse_unknown(cls, value, at)
    try:
        # YAML 1.1 reads 1e-5 (without a dot) as text, so numbers may be text here.
        return msgspec.convert(value, cls, strict=False)
    except msgspec.ValidationError as error:
        wrong, _, place = str(error).partition(" - at `$.")
        place = place.rstrip("`")
        raise ComplaintError(_join(at, place), _explained(wrong, cls, value, place)) from error


def _explained(wrong: str, hint: object, value: object, place: str) -> str:
    """Say what stands at a *place* inside *value*, and what may stand there by its *hint*."""
    if "missing" in wrong:
        return wrong
    for step in re.findall(r"[^.\[\]]+", place):
        inner = [hint, *get_args(hint)]  # a field may be None, or one of several
        if isinstance(value, list):
            value = value[int(step)]
            hint = inner[1]
        else:
            assert isinstance(value, Mapping)
            value = value[step]
            hint = next(get_type_hints(each)[step] for each in inner if is_dataclass(each))
    options = get_args(hint)
    if "enum" in wrong:
        texts = [each for one in options for each in (get_args(one) or (one,))]
        wrong = f"Expected one of {', '.join(each for each in texts if isinstance(each, str))}"
    wrong = wrong.split(", got")[0].replace("`object`", "a mapping").replace("`array`", "a list")
    return f"{wrong}, got {value!r:.60}"


def _refuse_unknown(hint: object, value: object, at: str) -> None:
    """Raise ComplaintError for a key that is no field, here or in a mapping inside."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            _refuse_unknown(hint, each, f"{at}[{number}]")
    elif isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
        known = get_type_hints(hint)
        for name, each in value.items():
            place = _join(at, str(name))
            if name not in known:
                raise ComplaintError(place, f"no such field: there are {', '.join(sorted(known))}")
            for inner in get_args(known[name]) or (known[name],):
                _refuse_unknown(inner, each, place)


def mapping(value: object, at: str) -> Mapping[str, object]:
    """Return *value* if it is a mapping; raise ComplaintError if not."""
    if not isinstance(value, Mapping):
        raise ComplaintError(at, f"Expected a mapping, got {value!r:.60}")
    return value


def _join(at: str, name: str) -> str:
    return ".".join(filter(None, (at, name)))


@lru_cache(maxsize=16)
def parse(text: str, *, name: str) -> Profile:
    """Parse a profile; *name* is the file's name without its suffix; raise ProfileError."""
    found = documents.parse(
        text, at=f"profile {name}", raises=ProfileError, hint="compare with a shipped profile"
    )
    try:
        return _profile(found, name)
    except ComplaintError as error:
        raise ProfileError(
            f"profile {name}: {error}", hint=f"fix it, then `agentload profile show {name}`"
        ) from error


def read(name: str) -> Profile:
    """Find and parse the profile of this name or file; raise ProfileError if there is none."""
    return parse(documents.text(find("profiles", name), raises=ProfileError), name=name)


def arm(profile: Profile, name: str) -> ArmProfile:
    """Return the arm of this name; raise ProfileError with the arms that exist."""
    for candidate in profile.arms:
        if candidate.name == name:
            return candidate
    known = [candidate.name for candidate in profile.arms]
    raise ProfileError(
        f"profile {profile.name} has no arm '{name}': it has {', '.join(known)}",
        hint=nearest(
            name,
            known,
            form=f"{profile.name}/{{}}",
            otherwise="a variant that nobody measured is not guessed",
        ),
    )


def step_time(arm: ArmProfile) -> StepTime:
    """Return the arm's timing; raise ProfileError if only its accuracy is known."""
    if arm.step is None:
        raise ProfileError(
            f"profile {arm.profile}/{arm.name} has accuracy only: no latency was published for it",
            hint="use it as a prior for accuracy, or fit a profile from a measured run: "
            "agentload profile fit RUN -o FILE",
        )
    return arm.step


def _profile(value: object, name: str) -> Profile:
    value = mapping(value, "")
    for section, kind in (("gpu", Gpu), ("model", ModelShape)):
        build(kind, value.get(section), section)
    arms = value.get("arms")
    if not isinstance(arms, Mapping) or not arms:
        raise ComplaintError("arms", "a mapping of at least one arm is expected")
    of_arms = {"gpu", "model", *_SHARED}
    known = of_arms | {field.name for field in fields(Profile)} - {"name"}
    if unknown := sorted(str(key) for key in value.keys() - known):
        raise ComplaintError(unknown[0], f"no such field: there are {', '.join(sorted(known))}")
    own = {key: item for key, item in value.items() if key not in of_arms}
    profile = build(Profile, {**own, "name": name, "arms": []}, "")
    shared = {section: _merged(None, value.get(section), section) for section in _SHARED}
    whole = {"profile": name, "gpu": value["gpu"], "model": value["model"]}
    made = (
        _arm(item, f"arms.{key}", {**whole, "name": str(key)}, shared) for key, item in arms.items()
    )
    return replace(profile, arms=tuple(made))


def _arm(
    value: object,
    at: str,
    whole: Mapping[str, object],
    shared: Mapping[str, Mapping[str, object] | None],
) -> ArmProfile:
    """Build an arm of its own fields, those of the *whole* profile, and the *shared* sections."""
    value = mapping(value, at)
    if misplaced := sorted(whole.keys() & value.keys()):
        raise ComplaintError(f"{at}.{misplaced[0]}", "no field of a single arm")
    own = {field: item for field, item in value.items() if field not in _SHARED}
    for section in _SHARED:
        merged = _merged(shared[section], value.get(section), f"{at}.{section}")
        if merged is not None:
            own[section] = merged
    arm = build(ArmProfile, {**own, **whole}, at)
    for number, score in enumerate(arm.accuracy):
        if score.depth and (len(score.depth) != 2 or score.depth[0] > score.depth[1]):
            raise ComplaintError(
                f"{at}.accuracy[{number}].depth", "two numbers, the smaller one first"
            )
    if arm.server.max_model_len > arm.model.max_len:
        raise ComplaintError(
            f"{at}.server.max_model_len", f"more than the model's {arm.model.max_len}"
        )
    return arm


def _merged(
    shared: Mapping[str, object] | None, own: object, at: str
) -> Mapping[str, object] | None:
    if own is None:
        return shared
    return {**(shared or {}), **mapping(own, at)}


def text(profile: Profile) -> str:
    """Return the text of a profile's file, which does not contain the profile's name.

    All arms are of the same GPU and model.
    """
    one = profile.arms[0]
    file = {
        "title": profile.title,
        "sources": [_plain(source) for source in profile.sources],
        "provenance": _plain(profile.provenance),
        "gpu": _plain(one.gpu),
        "model": _plain(one.model),
        "slos": [_plain(slo) for slo in profile.slos],
        "price": _plain(profile.price),
        "arms": {arm.name: _plain(arm, without=_FROM_ELSEWHERE) for arm in profile.arms},
    }
    shown = {key: value for key, value in file.items() if value not in (None, [])}
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=136)


def _plain(value: object, *, without: frozenset[str] = frozenset()) -> object:
    """Turn frozen data into what YAML can hold, leaving out defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        said = {
            field: getattr(value, field.name)
            for field in fields(value)
            if field.name not in without
        }
        return {
            field.name: _plain(item) for field, item in said.items() if not _is_default(field, item)
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _is_default(field: Field[object], value: object) -> bool:
    if field.default_factory is not MISSING:
        return value == field.default_factory()
    return field.default is not MISSING and value == field.default
