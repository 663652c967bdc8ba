"""The four lists: what to use the arm for, what to avoid it for, what to calibrate and what to test further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from advisor.verdict import ArmVerdict, Word
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Listing
from agentload.report.sections.screens import need
from agentload.report.sections.view import View

# The headings are those of the practice this report grew out of; people search for them.
HEADINGS: Final[tuple[tuple[str, Word], ...]] = (
    ("Use {} for", "use"),
    ("Avoid {} for", "avoid"),
    ("Need calibration for", "calibrate"),
    ("Need further testing for", "test further"),
)


def lists(view: View) -> tuple[Listing, ...]:
    """Sort every verdict into its list; a list may be empty, and says so."""
    return tuple(
        Listing(
            heading=heading.format(view.subject), word=word, items=(*_items(view, word), *(_beyond(view) if word == "test further" else ()))
        )
        for heading, word in HEADINGS
    )


def no_difference(view: View) -> tuple[str, ...]:
    """Name the classes for which the arms were shown to be equal."""
    return _items(view, "no difference")


def _items(view: View, word: Word) -> tuple[str, ...]:
    arms = sorted(view.arms[1:], key=lambda arm: arm != view.focus)
    return tuple(item for arm in arms for item in _of_arm(view, arm, word))


def _of_arm(view: View, arm: str, word: Word) -> tuple[str, ...]:
    verdicts = [each for name in view.workloads if (each := view.verdict(arm, name)) is not None and each.verdict == word]
    server = view.verdict(arm, None)
    if word in ("calibrate", "test further") and server is not None and server.verdict == word and _covers(verdicts, view):
        return (f"{labels.arm(arm)}, the whole server{need(server, is_whole=True)}",)
    if word == "test further":
        return tuple(f"{each.workload} ({labels.arm(arm)}{need(each, is_whole=True)})" for each in verdicts)
    if verdicts:
        return (f"{', '.join(each.workload or '' for each in verdicts)} ({labels.arm(arm)})",)
    if server is not None and server.verdict == word and not view.workloads:
        return (f"the whole server ({labels.arm(arm)})",)
    return ()


def _covers(verdicts: Sequence[ArmVerdict], view: View) -> bool:
    """Say whether the server's verdict is best told once: every class says the same, or none does."""
    return len(verdicts) in (0, len(view.workloads))


def _beyond(view: View) -> tuple[str, ...]:
    verdict = view.verdict(view.focus, None)
    if verdict is None or not verdict.untested_share:
        return ()
    longest = max((bucket.context_tokens for bucket in view.evidence.accuracy if bucket.arm == view.focus), default=None)
    contexts = f"contexts above {say.tokens(longest)}" if longest else "contexts outside the tested range"
    stay = f"stay on {labels.arm(view.evidence.reference)} or cap"
    return (f"{contexts} ({say.percent(verdict.untested_share)} of your calls, not tested: {stay})",)
