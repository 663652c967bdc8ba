"""Compare two runs of one plan.

What changed from the earlier to the later one, in a sentence and by figure.
"""

from collections.abc import Iterator
from typing import Final

from advisor.estimate import Estimate
from advisor.verdict import TIMES, Change
from agentload.model.record import Record
from agentload.report import format as say
from agentload.report.parts import Document, Tone
from agentload.watch.job import METRICS

ONCE: Final = (
    "One run each: a restart or a noisy neighbour could explain a difference of this size."
)


NEITHER: Final = "These runs cannot be compared yet: too few block pairs are whole in both"
_PLAIN: Final[Tone] = "plain"
INVALID: Final[tuple[str, Tone]] = ("not valid", _PLAIN)


class ChangeLine(Record):
    """How one figure of one workload changed; of the whole server where the workload is None."""

    workload: str | None
    metric: str
    change: Change
    tone: Tone
    word: str


class ComparedPage(Record):
    """The data of the page."""

    before: str
    after: str
    headline: str
    tone: Tone
    because: str
    lines: tuple[ChangeLine, ...]
    failed: tuple[str, ...]
    """Validity checks that failed: what is wrong with the measurement itself."""


def comparison(document: Document) -> ComparedPage:
    """Return the page of a document that compares two runs."""
    least = document.policy.min_change
    lines = tuple(_lines(document, least))
    gates = [each for each in document.decision.gates if each.status == "fail"]
    headline, tone, because = NEITHER, _PLAIN, ""
    if lines:
        of_mix = [
            each for each in lines if each.workload is None and each.change.metric == "turn_ms"
        ]
        whole = (*of_mix, lines[0])[0]
        headline = _headline(whole, least)
        tone = _PLAIN if gates else whole.tone
        pairs = say.plural(whole.change.pairs, "block pair")
        said = f"{whole.metric} {say.change(whole.change.relative)}, {pairs}"
        because = f"{said.capitalize()}. {ONCE}"
    return ComparedPage(
        before=document.decision.reference,
        after=document.run,
        headline=headline,
        tone=tone,
        because=because,
        lines=lines,
        failed=tuple(f"{each.name}: {each.message}" for each in gates),
    )


def _lines(document: Document, least: float) -> Iterator[ChangeLine]:
    names = {str(metric): words for metric, words in METRICS.items()}
    order = list(names)
    changes = document.decision.changes
    failed = (each for each in document.decision.gates if each.status == "fail")
    is_valid = all(set(TIMES).isdisjoint(each.spoils) for each in failed)
    for each in sorted(changes, key=lambda each: (each.workload or "", order.index(each.metric))):
        word, tone = INVALID
        if is_valid:
            word, tone = _judged(each.relative, each.floor, least)
        metric = names[each.metric]
        yield ChangeLine(workload=each.workload, metric=metric, change=each, word=word, tone=tone)


def _judged(found: Estimate, floor: float | None, least: float) -> tuple[str, Tone]:
    """Compare a change with the smallest that counts and with the noise of identical servers."""
    low, high = found.closed_ends
    if floor is not None and abs(found.value) < floor:
        return "within noise", "plain"
    if low > least:
        return "slower", "bad"
    if high < -least:
        return "faster", "good"
    if -least < low and high < least:
        return ("no change", "good")
    return ("undecided", "plain")


def _headline(whole: ChangeLine, least: float) -> str:
    match whole.word:
        case "slower" | "faster":
            return f"{whole.word} than before"
        case "no change":
            return f"no change beyond {say.percent(least)}"
        case "within noise":
            return "no change that noise does not explain"
        case "not valid":
            return "undecided: a validity check failed"
        case _:
            return "undecided: a change is neither shown nor ruled out"
