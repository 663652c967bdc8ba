"""Write a profile as YAML that `profile.parse` reads back to the same data."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass

import yaml

from agentload.model.profile import Profile

_FROM_ELSEWHERE = frozenset({"name", "profile", "gpu", "model"})
"""Of an arm: its place in the file, or of the whole profile."""


def text(profile: Profile) -> str:
    """Return the file of a profile; its name is the file's. All arms are of the same GPU and model."""
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
    """Turn frozen data into what YAML has, leaving out what is as it is by default."""
    if is_dataclass(value) and not isinstance(value, type):
        said = {field: getattr(value, field.name) for field in fields(value) if field.name not in without}
        return {field.name: _plain(item) for field, item in said.items() if not _is_default(field, item)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _is_default(field: Field[object], value: object) -> bool:
    if field.default_factory is not MISSING:
        return value == field.default_factory()
    return field.default is not MISSING and value == field.default
