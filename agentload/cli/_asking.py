"""Say what questions came to: what would be asked, how many answers
are right, how far a screen found each arm from the reference.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from advisor.evidence import Screened
from advisor.rules.screened_answers import screening_text, worth_asking
from advisor.statistics.screen import Screening, screening
from agentload.cli._print import ABSENT, figure, length, print_json, print_table, table
from agentload.evidence.grades import ArmTotal, Evaluation
from agentload.evidence.screen import scored_prompts, screen
from agentload.evidence.view import run_view
from agentload.layout.cost import about
from agentload.run.place import StudyPlace
from agentload.run.questions import Question, QuestionsCost
from agentload.run.record import again
from agentload.store.database import reading
from agentload.study.change import extend
from agentload.study.kinds import Ask

ENDED: Final = {
    "settled": "decided",
    "hopeless": "ended",
    "open": "undecided",
    "stopped": "stopped",
}
"""How a sequence of looks ended."""
ALPHA = 0.05


def describe(
    questions: Sequence[Question], cost: QuestionsCost, arms: Sequence[str], *, had: int
) -> str:
    """Return what would be asked, for people; the run has answers to *had* others already."""
    others = f"; {had:,} others have answers, or are too long for a window" if had else ""
    lengths = sorted({each.context for each in questions})
    depths = len({each.depth for each in questions if each.depth is not None})
    times = len({each.repetition for each in questions})
    return "\n".join(
        (
            f"tasks     {', '.join(dict.fromkeys(each.task for each in questions))}",
            f"contexts  {', '.join(map(length, lengths))}{f'; {depths} depths' if depths else ''}",
            (
                f"questions {cost.items:,}, each {f'{times} times' if times > 1 else 'once'} on "
                f"{', '.join(arms)}{others}"
            ),
            f"answers   {cost.questions:,}",
            f"tokens    {cost.prompt_tokens:,} in",
            f"duration  {about(cost.minutes)} (with {cost.assumed})",
            "nothing was sent (--dry-run)",
        )
    )


def summary(found: Evaluation) -> str:
    """Return the share of right answers, a row a cell and a column an arm, and how arms differ."""
    return "\n".join(
        (
            f"run {found.run_id}",
            *_shares(found),
            *_areas(found),
            *(_difference(arm) for arm in found.arms[1:]),
            *_flaws(found),
        )
    )


def _shares(found: Evaluation) -> Iterable[str]:
    """Return the table of right answers; its last row is of all questions."""
    arms = [each.arm for each in found.arms]
    right = {
        (each.task, each.context_tokens, each.arm): _share(each.right, each.answered)
        for each in found.cells
    }
    rows = [
        (task, length(context), *(right.get((task, context, arm), ABSENT) for arm in arms))
        for task, context in dict.fromkeys((task, context) for task, context, _ in right)
    ]
    rows.append(("all", "", *(_share(each.right, each.answered) for each in found.arms)))
    return table(("task", "length", *arms), rows)


def _areas(found: Evaluation) -> Iterator[str]:
    """Say how much of a task each arm keeps over all lengths, and where it is worst."""
    reference = found.arms[0].arm
    areas = {curve.task: curve.area for curve in found.curves if curve.arm == reference}
    for curve in found.curves:
        kept, of = "", "right"
        if curve.arm != reference:
            of = "of the reference's score"
            if areas.get(curve.task):
                kept = f" ({curve.area / areas[curve.task]:.1%} of {reference}'s)"
        yield (
            f"{curve.task}, {curve.arm}: area {curve.area:.3f}{kept}, worst "
            f"{length(curve.worst_context)} with {curve.worst:.1%} {of}"
        )


def _difference(arm: ArmTotal) -> str:
    same = ""
    if arm.agreement is not None:
        agreement = f"{arm.agreement:.0%}"
        same = f", half of the answers agree with the reference's for {agreement} or more"
    return f"{arm.arm}: {arm.lost} lost, {arm.won} won{same}"


def _flaws(found: Evaluation) -> Iterator[str]:
    """Name the arms of which some answers cannot be graded as answers are."""
    for arm in found.arms:
        counts = {"failed": arm.failed, "garbage": arm.garbage, "cut at the cap": arm.cut}
        if said := ", ".join(f"{count} {what}" for what, count in counts.items() if count):
            yield f"{arm.arm}: {said}"


def _share(right: int, answered: int) -> str:
    if answered:
        return f"{right / answered:.1%}"
    return ABSENT


def print_screen(study: Ask, place: StudyPlace, run: str, *, as_json: bool) -> None:
    """Print what a screen of the arms says and what to ask next."""
    with reading(place.database) as connection:
        view = run_view(connection, run)
    arms = view.arm_names
    rows, excused = screen(view, arms)
    paths = scored_prompts(view, arms)
    found = tuple(
        screening([row for row in rows if row.arm == arm], alpha=ALPHA)
        for arm in arms
        if any(row.arm == arm for row in rows)
    )
    if as_json:
        print_json(
            {
                "run_id": run,
                "arms": [asdict(each) for each in found],
                "not_screened": dict(excused),
                "scored_prompts": paths,
            }
        )
        return
    print(f"run {run}")
    _print_lengths(found, arms[0])
    for each in found:
        print(screening_text(each, arms[0]))
    for arm, why in excused:
        print(f"{arm} is not screened: {why.rstrip('.')}. Questions alone tell.")
    for path in paths:
        print(
            f"{path.arm}, a prompt of {length(path.length)} scored whole: "
            f"{path.variation:.2g} from {arms[0]}, which is {path.own:.2g} away"
        )
        print(
            f"  from itself. {_part(path.cached)} of it was read from the cache, "
            f"{_part(_cached_part(rows, path.arm))} before single tokens."
        )
    print(f"\nNext: {_next(study, found, place.database, run)}")


def _cached_part(rows: Sequence[Screened], arm: str) -> float | None:
    """Say which part of the prompts was cached."""
    said = [row.cached for row in rows if row.arm == arm and row.cached is not None]
    if not said:
        return None
    return sum(said) / len(said)


def _part(cached: float | None) -> str:
    return "an unknown part" if cached is None else f"{cached:.0%}"


def _print_lengths(found: tuple[Screening, ...], reference: str) -> None:
    cells = [
        (
            each.arm,
            length(round(at.length)),
            str(at.prompts),
            f"{at.times:.1f}",
            f"{at.agreement:.0%}",
            figure(at.p, ".3f"),
        )
        for each in found
        for at in each.lengths
    ]
    print_table(
        (
            "arm",
            "length",
            "prompts",
            f"times as far as {reference} from itself",
            "same likeliest token",
            "p",
        ),
        cells,
    )


def _next(study: Ask, found: tuple[Screening, ...], database: Path, run: str) -> str:
    """Return the next command: a report if answers are broken, else questions worth asking."""
    open_ = [each for each in found if each.pattern != "broken"]
    if found and not open_:
        return f"agentload advise {database} --run {run}"
    asked = extend(study, screen=False, traces=())
    return again(
        extend(asked, contexts=worth_asking(open_[0])) if open_ else asked, database, into=run
    )
