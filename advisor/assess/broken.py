"""Find where the answers of an arm are wrong altogether.

That is not a loss of some points, which calibrated scales may win back: from a length on, or at a
depth, most of what the reference gets right is gone, as it is where a kernel is broken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np

from advisor.assess.answers import MarginTest, has_answers, margin_test, paired_scores, telling
from advisor.case import look_level_of_answers
from advisor.evidence import AccuracyBucket, Bools, Evidence, Floats, Ints
from advisor.policy import Policy
from advisor.results import BrokenAnswers

# of the right answers: scales that are off lose points, a broken kernel loses most
COLLAPSED: Final = 0.5
LEAST_LOST: Final = 10  # answers right on the reference alone, while none is right on the arm alone
LEAST_SUSPECT: Final = 4  # the same at one depth: a reason to ask more
# contexts with such answers: the questions of one context may share its odd text
LEAST_CONTEXTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """Hold paired answers as equally long columns, with where they were asked."""

    reference: Floats
    arm: Floats
    contexts: Ints
    lengths: Floats
    depths: Floats

    def only(self, rows: Bools) -> "_Answers":
        """Return the answers of some rows."""
        return _Answers(
            reference=self.reference[rows],
            arm=self.arm[rows],
            contexts=self.contexts[rows],
            lengths=self.lengths[rows],
            depths=self.depths[rows],
        )

    @property
    def is_lost(self) -> Bools:
        """Tell which answers are better on the reference."""
        return self.arm < self.reference

    @property
    def is_mostly_lost(self) -> bool:
        """Tell whether the arm has less than half of what the reference gets right."""
        half = (1 - COLLAPSED) * self.reference.sum()
        return bool(self.arm.sum() < half)


def _answers(buckets: tuple[AccuracyBucket, ...]) -> _Answers:
    scores = paired_scores(buckets)
    sizes = [each.items for each in buckets]
    return _Answers(
        reference=scores.reference,
        arm=scores.arm,
        contexts=scores.clusters,
        lengths=np.repeat([each.context_tokens for each in buckets], sizes),
        depths=np.concatenate([_depths(each) for each in buckets]),
    )


def _depths(bucket: AccuracyBucket) -> Floats:
    """Return the depth of each question in its context; -1 where it has none."""
    if bucket.depths is None:
        return np.full(bucket.items, -1.0)
    return np.nan_to_num(bucket.depths, nan=-1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Hold where arms are broken, and the single depths at which they may be."""

    broken: tuple[BrokenAnswers, ...]
    suspects: tuple[BrokenAnswers, ...]


_Fault: TypeAlias = tuple[BrokenAnswers, _Answers]
"""Where answers are gone, and the answers there."""


def faults(evidence: Evidence, policy: Policy) -> Faults:
    """Return where the answers of each arm are wrong altogether.

    What counts is neighbouring lengths at each of which most of the right answers are gone. There,
    every answer that differs has to speak against the arm, often enough, in several contexts and
    at all depths; or so much has to be gone that the interval says so. Where answers are gone at
    single depths alone, each of those depths has to show it by itself.
    """
    level = look_level_of_answers(evidence, policy)
    broken: list[BrokenAnswers] = []
    suspects: list[BrokenAnswers] = []
    for arm in evidence.challengers:
        asked = [each for each in evidence.accuracy if each.arm == arm.name and has_answers(each)]
        able = telling(tuple(asked), policy)
        if not able:
            continue
        answers = _answers(able)
        at_depths = list(_at_depths(answers, arm.name))
        found = []
        for fault, within in _gone(answers, arm.name):
            buckets = [each for each in able if each.context_tokens in fault.lengths]
            test = margin_test(buckets, policy, level)
            is_gone = test is not None and _is_surely_gone(within, test)
            if is_gone or _is_against(within, LEAST_LOST, LEAST_CONTEXTS):
                found.append(fault)
        found += _of_depths(at_depths, LEAST_LOST, LEAST_CONTEXTS)
        broken += found
        if not found:
            suspects += _of_depths(at_depths, LEAST_SUSPECT, LEAST_SUSPECT)
    return Faults(broken=tuple(broken), suspects=tuple(suspects))


def _of_depths(
    at_depths: Sequence[_Fault], least_lost: int, least_contexts: int
) -> list[BrokenAnswers]:
    """Return the faults at single depths that enough answers in enough contexts show."""
    return [fault for fault, within in at_depths if _is_against(within, least_lost, least_contexts)]


def _gone(answers: _Answers, arm: str) -> Iterator[_Fault]:
    """Yield each run of lengths at which most right answers are gone, at every depth.

    The longest lengths come first.
    """
    runs = _runs(answers)
    for number in reversed(range(len(runs))):
        is_gone, lengths = runs[number]
        within = answers.only(np.isin(answers.lengths, lengths))
        lost_at = set(within.depths[within.is_lost])
        if not is_gone or lost_at != set(within.depths):
            continue
        # Runs take turns, so both neighbours of one that is gone are sound.
        is_first = number == 0
        is_last = number == len(runs) - 1
        found = BrokenAnswers(
            arm=arm,
            lengths=lengths,
            depths=(),
            right=round(float(within.arm.sum())),
            reference_right=round(float(within.reference.sum())),
            items=within.arm.size,
            sound_to=None if is_first else runs[number - 1][1][-1],
            sound_from=None if is_last else runs[number + 1][1][0],
        )
        yield found, within


def _runs(answers: _Answers) -> list[tuple[bool, tuple[float, ...]]]:
    """Return the rising lengths, parted where right answers begin or cease to be mostly gone."""

    def is_gone_at(length: float) -> bool:
        return answers.only(answers.lengths == length).is_mostly_lost

    lengths = [float(each) for each in np.unique(answers.lengths)]
    return [(is_gone, tuple(run)) for is_gone, run in groupby(lengths, is_gone_at)]


def _at_depths(answers: _Answers, arm: str) -> Iterator[_Fault]:
    """Yield the same for each single depth, where other depths of its lengths are sound."""
    for depth in np.unique(answers.depths):
        is_here = answers.depths == depth
        for found, within in _gone(answers.only(is_here), arm):
            is_as_long = np.isin(answers.lengths, found.lengths)
            others = answers.only(~is_here & is_as_long)
            if others.arm.size and not others.is_mostly_lost:
                yield replace(found, depths=(float(depth),)), within


def _is_against(answers: _Answers, least_lost: int, least_contexts: int) -> bool:
    """Tell whether all that differs speaks against the arm, and there is enough of it."""
    is_won = answers.arm > answers.reference
    if np.any(is_won):
        return False
    is_lost = answers.is_lost
    contexts = np.unique(answers.contexts[is_lost])
    return int(is_lost.sum()) >= least_lost and contexts.size >= least_contexts


def _is_surely_gone(answers: _Answers, test: MarginTest) -> bool:
    """Tell whether the interval shows a loss of over half of what the reference gets right."""
    half = COLLAPSED * float(answers.reference.mean())
    return test.difference.is_below(-half)
