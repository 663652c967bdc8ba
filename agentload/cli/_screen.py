"""Print what a screen found: how far each arm is from the reference, in times of what the reference is from itself."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from advisor.evidence import Screened
from advisor.rules.screened_answers import told, worth_asking
from advisor.statistics.screen import Screening, screening
from agentload.cli._asking import length
from agentload.cli._audience import TERMINAL
from agentload.cli._print import print_json, print_table
from agentload.evidence.screen import scored, screen
from agentload.model.controls import is_control
from agentload.model.rows import ArmRow
from agentload.run.foreground import screened
from agentload.run.prepared import Place
from agentload.run.record import again
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.change import extended
from agentload.study.kinds import Ask

ALPHA = 0.05


def screen_and_tell(study: Ask, place: Place, *, as_json: bool) -> None:
    """Screen the arms of a study, and print what that says and what to ask next."""
    run = screened(study, place, TERMINAL)
    with reading(place.database) as connection:
        arms = [row.arm for row in tables.rows(connection, ArmRow, run_id=run) if not is_control(row.arm)]
        rows, excused = screen(connection, run, arms)
        paths = scored(connection, run, arms)
    found = tuple(screening([row for row in rows if row.arm == arm], alpha=ALPHA) for arm in arms if any(row.arm == arm for row in rows))
    if as_json:
        print_json({"run_id": run, "arms": [asdict(each) for each in found], "not_screened": dict(excused), "scored_prompts": paths})
        return
    print(f"run {run}")
    _print_lengths(found, arms[0])
    for each in found:
        print(told(each, arms[0]))
    for arm, why in excused:
        print(f"{arm} is not screened: {why.rstrip('.')}. Questions alone tell.")
    for path in paths:
        print(
            f"{path.arm}, a prompt of {length(path.length)} scored whole: {path.variation:.2g} from {arms[0]}, which is {path.own:.2g} away"
        )
        print(
            f"  from itself. {_share(path.cached)} of it was read from the cache, {_share(_cached(rows, path.arm))} before single tokens."
        )
    print(f"\nNext: {_next(study, found, place.database, run)}")


def _cached(rows: Sequence[Screened], arm: str) -> float | None:
    said = [row.cached for row in rows if row.arm == arm and row.cached is not None]
    return sum(said) / len(said) if said else None


def _share(cached: float | None) -> str:
    return "an unknown part" if cached is None else f"{cached:.0%}"


def _print_lengths(found: tuple[Screening, ...], reference: str) -> None:
    cells = [
        (
            each.arm,
            length(round(at.length)),
            str(at.prompts),
            f"{at.times:.1f}",
            f"{at.agreement:.0%}",
            "–" if at.p is None else f"{at.p:.3f}",
        )
        for each in found
        for at in each.lengths
    ]
    print_table(("arm", "length", "prompts", f"times as far as {reference} from itself", "same likeliest token", "p"), cells)


def _next(study: Ask, found: tuple[Screening, ...], database: Path, run: str) -> str:
    """Return the command that follows: a report where answers are broken, else questions where they are worth most."""
    open_ = [each for each in found if each.pattern != "broken"]
    if found and not open_:
        return f"agentload advise {database} --run {run}"
    asked = extended(study, screen=False, traces=())
    return again(extended(asked, contexts=worth_asking(open_[0])) if open_ else asked, database, into=run)
