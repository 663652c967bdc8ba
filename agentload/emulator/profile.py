"""Read a profile from YAML text into frozen data by its type hints, and write it back.

Errors name the file, the place in it and what was expected.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from agentload import documents
from agentload.builtin import find
from agentload.errors import ProfileError, nearest
from agentload.model.kv import KvDtype
from agentload.model.profile import (
    Accuracy,
    ArmProfile,
    EncoderTime,
    Gpu,
    LoadTest,
    Logprobs,
    ModelShape,
    Noise,
    Price,
    Profile,
    Provenance,
    PublishedSlo,
    Server,
    Source,
    Speculation,
    StepTime,
)

T = TypeVar("T")
Bounds = Mapping[str, tuple[float, float]]
"""Allowed range of a field, by its name; every other number is at least 0."""
SMALLEST: Final = 1e-12
"""Used for "more than nothing", where zero would divide or mean a missing machine."""
_SHARE = (0.0, 1.0)
_MANY = (1.0, 1e18)
_POSITIVE = (SMALLEST, 1e18)
_BOUNDS: Final[Bounds] = {
    **dict.fromkeys(
        (
            "memory_gib",
            "bandwidth_tb_s",
            "bf16_tflops",
            "fp8_tflops",
            "decode_ms",
            "weight_gib",
            "gb_per_s",
        ),
        _POSITIVE,
    ),
    **dict.fromkeys(
        (
            "layers",
            "heads",
            "max_len",
            "total",
            "active",
            "window",
            "kv_heads",
            "known_to_batch",
            "segment_steps",
        ),
        _MANY,
    ),
    **dict.fromkeys(
        (
            "max_model_len",
            "block_tokens",
            "max_num_batched_tokens",
            "max_num_seqs",
            "requests",
            "concurrency",
            "drafts",
        ),
        _MANY,
    ),
    **dict.fromkeys(
        ("acceptance", "tail_share", "gpu_memory_utilization", "share", "depth"), _SHARE
    ),
    "phi": (0.0, 0.999),
    "percent": (0.0, 100.0),
    "factor": (SMALLEST, 1e6),
}
_WORDS: Final[Mapping[Any, str]] = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
}
_SHARED: Final = ("server", "step", "encoder", "noise", "logprobs")
_FROM_ELSEWHERE = frozenset({"name", "profile", "gpu", "model"})
"""Fields of an arm that come from its place in the file, or from the whole profile."""


class ComplaintError(Exception):
    """A value in the file is not what it should be; says where and which."""

    def __init__(self, at: str, expected: str, got: object = dataclasses.MISSING) -> None:
        given = "" if got is dataclasses.MISSING else f", got {_shown(got)}"
        super().__init__(f"{at or 'top level'}: expected {expected}{given}")


def build(cls: type[T], value: object, at: str, *, bounds: Bounds) -> T:
    """Build a dataclass from a mapping with exactly its fields; raise ComplaintError if not."""
    value = mapping(value, at, f"a mapping of {cls.__name__} fields")
    hints = get_type_hints(cls)
    # T is always a dataclass, which its type cannot express
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in value:
        if key not in fields:
            raise ComplaintError(_join(at, str(key)), f"one of {', '.join(sorted(fields))}", key)
    made: dict[str, object] = {}
    for name, field in fields.items():
        place = _join(at, name)
        if name in value:
            made[name] = _value(hints[name], value[name], place, name, bounds)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ComplaintError(place, f"{_named(hints[name])} (the field is missing)")
    return cls(**made)


def _value(
    hint: Any,  # noqa: ANN401  # a type hint has no narrower type
    value: object,
    at: str,
    name: str,
    bounds: Bounds,
) -> object:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in {Union, types.UnionType}:
        (inner,) = {*arguments} - {types.NoneType}
        if value is None:
            return None
        return _value(inner, value, at, name, bounds)
    if origin is Literal:
        if value in arguments:
            return value
        raise ComplaintError(at, f"one of {', '.join(map(str, arguments))}", value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ComplaintError(at, "a list", value)
        return tuple(
            _value(arguments[0], item, f"{at}[{index}]", name, bounds)
            for index, item in enumerate(value)
        )
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, at, bounds=bounds)
    if hint in (int, float):
        if hint is int and type(value) is not int:  # a bool is an int, too
            raise ComplaintError(at, _WORDS[int], value)
        return hint(_number(value, at, bounds.get(name, (0, math.inf))))
    if value == "" or not isinstance(value, hint):
        raise ComplaintError(at, _WORDS[hint], value)
    return value


def _number(value: object, at: str, bounds: tuple[float, float]) -> float:
    low, high = bounds
    expected = f"a number of at least {low:g}" + (
        f" and at most {high:g}" if high < math.inf else ""
    )
    # YAML 1.1 reads 1e-5 (without a dot) as text, so text is accepted here.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ComplaintError(at, expected, value)
    try:
        number = float(value)
    except ValueError:
        raise ComplaintError(at, expected, value) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise ComplaintError(at, expected, value)
    return number


def mapping(value: object, at: str, expected: str = "a mapping") -> Mapping[str, object]:
    """Return *value* if it is a mapping; raise ComplaintError if not."""
    if not isinstance(value, Mapping):
        raise ComplaintError(at, expected, value)
    return value


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _named(hint: Any) -> str:  # noqa: ANN401 - as above
    if hint in _WORDS:
        return _WORDS[hint]
    if get_origin(hint) is tuple:
        return "a list"
    if dataclasses.is_dataclass(hint):
        return "a mapping"
    return str(hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """An arm as the file has it, without the sections that arms may share."""

    kv_dtype: KvDtype
    skip_layers: tuple[str, ...] = ()
    speculation: Speculation | None = None
    accuracy: tuple[Accuracy, ...] = ()
    failure: Literal["miss", "repetition"] = "miss"
    load_tests: tuple[LoadTest, ...] = ()
    synthetic: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A file without its arms and the sections that arms share."""

    title: str
    gpu: Gpu
    model: ModelShape
    provenance: Provenance
    sources: tuple[Source, ...]
    slos: tuple[PublishedSlo, ...] = ()
    price: Price | None = None


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
            f"profile {name}: {error}",
            hint=f"mend {name}.yaml, then `agentload profile show {name}`",
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
    head = build(
        _Head,
        {key: item for key, item in value.items() if key not in {"arms", *_SHARED}},
        "",
        bounds=_BOUNDS,
    )
    arms = value.get("arms")
    if not isinstance(arms, Mapping) or not arms:
        raise ComplaintError("arms", "a mapping of at least one arm", arms)
    shared = {section: _merged(None, value.get(section), section) for section in _SHARED}
    return Profile(
        **_members(head, but=("gpu", "model")),
        name=name,
        arms=tuple(_arm(item, str(key), head, name, shared) for key, item in arms.items()),
    )


def _members(value: object, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a part of the file by name, for the whole that has the same names."""
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)  # type: ignore[arg-type]  # a dataclass
        if field.name not in but
    }


def _arm(
    value: object,
    key: str,
    head: _Head,
    profile: str,
    shared: Mapping[str, Mapping[str, object] | None],
) -> ArmProfile:
    at = f"arms.{key}"
    value = mapping(value, at)
    own = build(
        _Arm,
        {field: item for field, item in value.items() if field not in _SHARED},
        at,
        bounds=_BOUNDS,
    )
    for number, score in enumerate(own.accuracy):
        if score.depth and (len(score.depth) != 2 or score.depth[0] > score.depth[1]):
            raise ComplaintError(
                f"{at}.accuracy[{number}].depth",
                "two numbers, the smaller one first",
                list(score.depth),
            )
    merged = {
        section: _merged(shared[section], value.get(section), f"{at}.{section}")
        for section in _SHARED
    }
    server = build(Server, merged["server"] or {}, f"{at}.server", bounds=_BOUNDS)
    if server.max_model_len > head.model.max_len:
        raise ComplaintError(
            f"{at}.server.max_model_len",
            f"at most the model's {head.model.max_len}",
            server.max_model_len,
        )
    return ArmProfile(
        **_members(own),
        name=key,
        profile=profile,
        gpu=head.gpu,
        model=head.model,
        server=server,
        step=None
        if merged["step"] is None
        else build(StepTime, merged["step"], f"{at}.step", bounds=_BOUNDS),
        encoder=None
        if merged["encoder"] is None
        else build(EncoderTime, merged["encoder"], f"{at}.encoder", bounds=_BOUNDS),
        noise=build(Noise, merged["noise"] or {}, f"{at}.noise", bounds=_BOUNDS),
        logprobs=build(Logprobs, merged["logprobs"] or {}, f"{at}.logprobs", bounds=_BOUNDS),
    )


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
