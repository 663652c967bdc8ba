"""List the profiles: what was published or fitted about a deployment, arm by arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.builtin import find, names
from agentload.cli._output import print_json
from agentload.emulator.profile import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One profile at a glance."""

    name: str
    title: str
    arms: tuple[str, ...]
    """Those that have a latency and can be played."""
    accuracy_only: tuple[str, ...]


def run(*, json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    listed = tuple(_listed(name) for name in names("profiles"))
    if json:
        print_json(listed)
        return
    width = max((len(each.name) for each in listed), default=0)
    for each in listed:
        print(f"{each.name:<{width}}  {', '.join(each.arms) or '–'}")
        print(f"{'':<{width}}  {each.title}")
        if each.accuracy_only:
            print(f"{'':<{width}}  accuracy only: {', '.join(each.accuracy_only)}")


def _listed(name: str) -> Listed:
    profile = parse(find("profiles", name).read_text(encoding="utf-8"), name=name)
    return Listed(
        name=name,
        title=profile.title,
        arms=tuple(arm.name for arm in profile.arms if arm.step is not None),
        accuracy_only=tuple(arm.name for arm in profile.arms if arm.step is None),
    )
