"""Where a plan's arms change machines: rounds between two changes are a stretch."""

from collections.abc import Mapping, Sequence

from agentload.model.plan import Round


def stretches(rounds: Sequence[Round]) -> tuple[tuple[Round, ...], ...]:
    """Cut rounds where arms change machines; one stretch where they never do."""
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
    """Say on which machine each arm plays a stretch; None where nobody said."""
    return {play.arm: play.machine for round_ in stretch for play in round_.plays}
