"""Which machine carried which arm: a factor of its own beside the arm, and one that must not be mistaken for it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentload.evidence.plays import Play
from agentload.evidence.servers import Server
from agentload.model.controls import is_control


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a run, and who ran where."""

    names: tuple[str, ...]
    """Sorted."""
    only: Mapping[str, str]
    """The machine of each arm that stayed on one."""
    is_swapped: bool
    """Every arm ran on every machine."""


def machines(arms: Sequence[Server], plays: Sequence[Play]) -> Machines:
    """Say who ran where, from the plays that count; from what the arms were said to be where none was played."""
    seen: dict[str, set[str]] = defaultdict(set)
    for play in plays:
        if play.left_out is None and play.machine is not None:
            seen[play.arm].add(play.machine)
    if not seen:
        seen.update({each.arm: {each.machine} for each in arms if each.machine is not None})
    names = tuple(sorted(set().union(*seen.values())))
    compared = [each.arm for each in arms if not is_control(each.arm)]
    return Machines(
        names=names,
        only={arm: next(iter(on)) for arm, on in seen.items() if len(on) == 1},
        is_swapped=len(names) > 1 and all(len(seen.get(arm, ())) == len(names) for arm in compared),
    )
