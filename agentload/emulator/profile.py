"""Read a profile: YAML text to frozen data. Errors name the file, the place in it and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

import yaml

from agentload.emulator.reader import Bounds, ComplaintError, build
from agentload.errors import ProfileError
from agentload.model.profile import (
    Accuracy,
    ArmProfile,
    Gpu,
    KvDtype,
    LoadTest,
    ModelShape,
    Noise,
    Price,
    Profile,
    Provenance,
    Server,
    Slo,
    Source,
    Speculation,
    StepTime,
)

SMALLEST: Final = 1e-12
"""Stands for "more than nothing" where zero would divide or mean a missing machine."""
_SHARE = (0.0, 1.0)
_MANY = (1.0, 1e18)
_POSITIVE = (SMALLEST, 1e18)
_BOUNDS: Final[Bounds] = {
    **dict.fromkeys(("memory_gib", "bandwidth_tb_s", "bf16_tflops", "fp8_tflops", "decode_ms", "weight_gib"), _POSITIVE),
    **dict.fromkeys(("layers", "heads", "max_len", "total", "active", "window", "kv_heads", "known_to_batch", "segment_steps"), _MANY),
    **dict.fromkeys(
        ("max_model_len", "block_tokens", "max_num_batched_tokens", "max_num_seqs", "requests", "concurrency", "drafts"), _MANY
    ),
    **dict.fromkeys(("acceptance", "tail_share", "gpu_memory_utilization", "share"), _SHARE),
    "phi": (0.0, 0.999),
    "percent": (0.0, 100.0),
    "factor": (SMALLEST, 1e6),
}
_SHARED: Final = ("server", "step", "noise")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """An arm as the file has it, its shared sections apart."""

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
    """A file without its arms and the sections they share."""

    title: str
    gpu: Gpu
    model: ModelShape
    provenance: Provenance
    sources: tuple[Source, ...]
    slos: tuple[Slo, ...] = ()
    price: Price | None = None


def parse(text: str, *, name: str) -> Profile:
    """Parse a profile; `name` is the file's name without its suffix. Raises ProfileError."""
    try:
        return _profile(yaml.safe_load(text), name)
    except yaml.YAMLError as error:
        raise ProfileError(f"profile {name}: not YAML: {' '.join(str(error).split())}", hint="compare with a shipped profile") from error
    except ComplaintError as error:
        raise ProfileError(f"profile {name}: {error}", hint=f"mend {name}.yaml, then `agentload profile show {name}`") from error


def arm(profile: Profile, name: str) -> ArmProfile:
    """Return the arm of this name; raise ProfileError with the arms that exist."""
    for candidate in profile.arms:
        if candidate.name == name:
            return candidate
    known = [candidate.name for candidate in profile.arms]
    near = get_close_matches(name, known, n=1)
    raise ProfileError(
        f"profile {profile.name} has no arm '{name}': it has {', '.join(known)}",
        hint=f"did you mean {profile.name}/{near[0]}?" if near else "a variant that nobody measured is not guessed",
    )


def step_time(arm: ArmProfile) -> StepTime:
    """Return the arm's timing; raise ProfileError where only its accuracy is known."""
    if arm.step is None:
        raise ProfileError(
            f"profile {arm.profile}/{arm.name} has accuracy only: no latency was published for it",
            hint="use it as a prior for accuracy, or fit a profile from a measured run: agentload profile fit RUN -o FILE",
        )
    return arm.step


def _profile(value: object, name: str) -> Profile:
    if not isinstance(value, Mapping):
        raise ComplaintError("", "a mapping", value)
    head = build(_Head, {key: item for key, item in value.items() if key not in {"arms", *_SHARED}}, "", bounds=_BOUNDS)
    arms = value.get("arms")
    if not isinstance(arms, Mapping) or not arms:
        raise ComplaintError("arms", "a mapping of at least one arm", arms)
    shared = {section: _mapping(value.get(section), section) for section in _SHARED}
    return Profile(
        name=name,
        title=head.title,
        sources=head.sources,
        provenance=head.provenance,
        arms=tuple(_arm(item, str(key), head, name, shared) for key, item in arms.items()),
        slos=head.slos,
        price=head.price,
    )


def _arm(value: object, key: str, head: _Head, profile: str, shared: Mapping[str, Mapping[str, object] | None]) -> ArmProfile:
    at = f"arms.{key}"
    if not isinstance(value, Mapping):
        raise ComplaintError(at, "a mapping", value)
    own = build(_Arm, {field: item for field, item in value.items() if field not in _SHARED}, at, bounds=_BOUNDS)
    merged = {section: _merged(shared[section], value.get(section), f"{at}.{section}") for section in _SHARED}
    server = build(Server, merged["server"] or {}, f"{at}.server", bounds=_BOUNDS)
    if server.max_model_len > head.model.max_len:
        raise ComplaintError(f"{at}.server.max_model_len", f"at most the model's {head.model.max_len}", server.max_model_len)
    return ArmProfile(
        name=key,
        profile=profile,
        gpu=head.gpu,
        model=head.model,
        server=server,
        kv_dtype=own.kv_dtype,
        skip_layers=own.skip_layers,
        step=None if merged["step"] is None else build(StepTime, merged["step"], f"{at}.step", bounds=_BOUNDS),
        noise=build(Noise, merged["noise"] or {}, f"{at}.noise", bounds=_BOUNDS),
        speculation=own.speculation,
        accuracy=own.accuracy,
        failure=own.failure,
        load_tests=own.load_tests,
        synthetic=own.synthetic,
        note=own.note,
    )


def _merged(shared: Mapping[str, object] | None, own: object, at: str) -> Mapping[str, object] | None:
    override = _mapping(own, at)
    if shared is None and override is None:
        return None
    return {**(shared or {}), **(override or {})}


def _mapping(value: object, at: str) -> Mapping[str, object] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ComplaintError(at, "a mapping", value)
    return value
