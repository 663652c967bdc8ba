"""What comes next is as likely on the arm as on the reference,
or a length stands out, or all do, or nothing agrees any more.

Only the last one is a verdict. The others say where questions are
worth most; that an arm is as accurate only graded answers show.
"""

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.evidence import Arm
from advisor.statistics.screen import Screening, screening
from advisor.steps import Calibrate, Features, Questions
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.screen"})
MOST = 3  # lengths that questions are first asked at


def check(case: Case, arm: Arm) -> Finding | None:
    """Return what the screen of an arm says, with the lengths to ask at."""
    rows = [row for row in case.evidence.screen if row.arm == arm.name]
    if not rows:
        return None
    found = screening(rows, alpha=case.policy.alpha)
    message = screening_text(found, case.evidence.reference)
    if not any(row.cached for row in rows):
        message += (
            " No probe was seen to read the prefix cache: what is stored there was not tested."
        )
    if found.pattern == "broken":
        return Finding(
            kind="blocks",
            context_tokens=found.at,
            message=message,
            flips="a version, kernel or flag under which they agree",
            next_step=Features(),
            leg="safe",
            asks_for="avoid",
        )
    is_open = is_quantised(arm) and arm.scales in ("default", None)
    return Finding(
        kind="informs",
        context_tokens=found.at,
        message=message,
        next_step=Calibrate()
        if found.pattern == "uniform" and is_open
        else Questions(lengths=worth_asking(found)),
        leg="safe",
        screening=True,
    )


def worth_asking(found: Screening) -> tuple[int, ...]:
    """Return the lengths that stand out most, the shortest first."""
    return tuple(sorted(round(each) for each in found.ranked[:MOST]))


def screening_text(found: Screening, reference: str) -> str:
    """Say what a screen of one arm shows, and what it does not."""
    arm, worst = (
        found.arm,
        next(each for each in found.lengths if each.length == (found.at or found.ranked[0])),
    )
    lengths = [each.length for each in found.lengths]
    where, screened = words.length(worst.length), _span(min(lengths), max(lengths))
    from_there = _span(worst.length, max(lengths))
    far = (
        f"{worst.times:,.1f} times as far from those of {reference} as two runs of {reference} are"
    )
    likely = f"Token probabilities of {arm}"
    ask = "Ask questions there first: only graded answers show what that costs."
    match found.pattern:
        case "broken":
            same = (
                f"the likeliest token is that of {reference} at {worst.agreement:.0%} of the places"
            )
            return (
                f"Answers of {arm} are broken on prompts of {from_there} tokens: {same}, and token "
                f"probabilities are {far} from each other, on every prompt of three in a row."
            )
        case "step":
            return (
                f"{likely} leave those of {reference} abruptly at prompts of {where} tokens: there "
                f"they are {far} from each other. A kernel does something else on prompts of "
                f"{from_there}. {ask}"
            )
        case "uniform":
            return (
                f"{likely} are {far} from each other on prompts of {where} tokens, and about as "
                f"far at every length from {screened}: a sign of its scales, not of a kernel. {ask}"
            )
        case "grows":
            return (
                f"{likely} are {far} from each other on prompts of {where} tokens, and not as far "
                f"at every length from {screened}. {ask}"
            )
        case "few":
            return (
                f"{likely} are {far} from each other on prompts of {where} tokens; fewer than "
                f"eight prompts a length say nothing more. {ask}"
            )
        case "inside":
            same = (
                f"{likely} are no farther from those of {reference} than two runs of {reference} "
                "are from each other."
            )
            return f"{same} That does not show that it is as accurate: only graded answers do."


def _span(shortest: float, longest: float) -> str:
    """Name the lengths that were screened, which a screen says nothing beyond."""
    first, last = words.length(shortest), words.length(longest)
    return first if first == last else f"{first} to {last}"
