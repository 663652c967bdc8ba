"""Split a plan's rounds into stretches, which end where arms change machines."""

from collections.abc import Mapping, Sequence

from agentload.model.plan import Round


def stretches(rounds: Sequence[Round]) -> tuple[tuple[Round, ...], ...]:
    """Return the rounds in stretches, which is one if no arm changes its machine."""
    out: list[list[Round]] = []
    known: dict[str, str | None] = {}
    for round_ in rounds:
        now = {play.arm: play.machine for play in round_.plays}
        if not out or any(known.get(arm, machine) != machine for arm, machine in now.items()):
            out.append([])
            known = {}
        known.update(now)
        out[-1].append(round_)
    return tuple(tuple(stretch) for stretch in out)


def where(stretch: Sequence[Round]) -> Mapping[str, str | None]:
    """Return the machine on which each arm plays a stretch; None where the plan names none."""
    return {play.arm: play.machine for round_ in stretch for play in round_.plays}
