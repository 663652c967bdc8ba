"""Two runs of one plan: what changed from the earlier
to the later one, in a sentence and by figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from advisor.estimate import Estimate
from advisor.verdict import Change
from agentload.report import format as say
from agentload.report.parts import Document, Tone
from agentload.watch.job import METRICS

ONCE: Final = (
    "One run each: a restart or a noisy neighbour could explain a difference of this size."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How one figure of one workload changed; of the whole server where the workload is None."""

    workload: str | None
    metric: str
    change: Change
    tone: Tone
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The data of the page."""

    before: str
    after: str
    headline: str
    tone: Tone
    because: str
    lines: tuple[Line, ...]
    failed: tuple[str, ...]
    """Validity checks that failed: what is wrong with the measurement itself."""


def compared(document: Document) -> Compared:
    """Say what a document that compares two runs comes to."""
    least = document.policy.min_change
    lines = tuple(_lines(document, least))
    whole = next(
        (each for each in lines if each.workload is None and each.change.metric == "turn_ms"),
        lines[0] if lines else None,
    )
    said = (
        (
            f"{whole.metric} {say.change(whole.change.relative)}, "
            f"{say.plural(whole.change.pairs, 'block pair')}"
        )
        if whole
        else ""
    )
    failed = tuple(
        f"{each.name}: {each.message}" for each in document.decision.gates if each.status == "fail"
    )
    return Compared(
        before=document.decision.reference,
        after=document.run,
        headline=_headline(whole, least)
        if whole
        else "These runs cannot be compared yet: too few block pairs are whole in both",
        tone=whole.tone if whole and not failed else "plain",
        because=f"{said.capitalize()}. {ONCE}" if whole else "",
        lines=lines,
        failed=failed,
    )


def _lines(document: Document, least: float) -> Iterator[Line]:
    for each in sorted(
        document.decision.changes,
        key=lambda change: (change.workload or "", list(METRICS).index(change.metric)),
    ):
        word, tone = _judged(each.relative, each.floor, least)
        yield Line(
            workload=each.workload, metric=METRICS[each.metric], change=each, word=word, tone=tone
        )


def _judged(found: Estimate, floor: float | None, least: float) -> tuple[str, Tone]:
    """Compare a change with the smallest that counts,
    and with what two identical servers differ by.
    """
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    if floor is not None and abs(found.value) < floor:
        return "within noise", "plain"
    if low > least:
        return "slower", "bad"
    if high < -least:
        return "faster", "good"
    return ("no change", "good") if -least < low and high < least else ("undecided", "plain")


def _headline(whole: Line, least: float) -> str:
    match whole.word:
        case "slower" | "faster":
            return f"{whole.word} than before"
        case "no change":
            return f"no change beyond {say.percent(least)}"
        case "within noise":
            return "no change that noise does not explain"
        case _:
            return "undecided: a change is neither shown nor ruled out"
