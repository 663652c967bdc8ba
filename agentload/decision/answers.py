"""Ask questions in sequence: a pilot, then looks with the error spent, until the answers decide or the items are used up.

The looks and what each may spend are those of a decision. A first look that finds a reference which cannot answer ends it all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from advisor.assess.accuracy import LEAST_IN_A_BUCKET, correlation
from advisor.policy import Policy
from advisor.statistics.looks import Ends, ends
from advisor.statistics.planning import PLANNED_ANSWERS, PLANNED_DISCORDANCE, questions_a_context
from agentload.decision.sequence import ITEMS
from agentload.evidence import grades
from agentload.evidence.grades import accuracy as paired
from agentload.model.rows import ArmRow
from agentload.report.advise import advise
from agentload.report.policy import Setting
from agentload.run import foreground
from agentload.run.ask import Asked
from agentload.run.foreground import Audience
from agentload.run.prepared import Place, evaluation
from agentload.run.questions import Leading
from agentload.run.simulated_answers import answer_all, answering
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.change import extended
from agentload.study.kinds import Ask
from agentload.study.parts import Live, Virtual

Ending: TypeAlias = Literal["settled", "hopeless", "open", "stopped"]
"""hopeless: the reference cannot answer; open: all items were asked, and an arm is neither as accurate nor worse."""

SETTING: Final = Setting(policy=Policy(planned_looks=True), name="in sequence")
DRAWS: Final = 400
CORRELATED: Final = 40
"""Items at one length from which on it is estimated how much those behind one context differ together."""
QUESTION_TOKENS: Final = 256
"""What a further question takes: its own words, and an answer whose tokens take longer than those of a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """How a sequence ended."""

    asked: Asked
    items: int
    ending: Ending
    said: str


def looks(study: Ask) -> tuple[int, ...]:
    """Return after how many items in all a study is looked at."""
    most = study.items or ITEMS[-1]
    return (*(each for each in ITEMS if each < most), most)


def in_sequence(study: Ask, place: Place, audience: Audience) -> Sequence:
    """Ask until the answers decide."""
    study, each = extended(study, items=looks(study)[-1]), study.per_context
    for look in looks(study):
        ended = _asked(study, look, place, audience, each=each)
        if ended.left or ended.load_error is not None:
            return Sequence(asked=ended, items=look, ending="stopped", said="stopped before all was answered that was asked")
        if place.into is None and isinstance(study.servers, Live):
            place = replace(place, run=None, resume=ended.run_id)
        ending, said = _looked(place, ended.run_id)
        audience.notice(f"{look:,} items: {said}")
        if ending is not None:
            break
        if (fewer := _worth(study, place, ended.run_id)) < each:
            each = fewer
            audience.notice(f"answers behind one context differ together: {each} questions a context from now on")
    return Sequence(asked=ended, items=look, ending=ending or "open", said=said)


def _worth(study: Ask, place: Place, run: str) -> int:
    """Return how many questions behind one context are worth asking, by how much those so far differed together."""
    if study.per_context == 1:
        return 1
    with reading(place.database) as connection:
        arms = [row.arm for row in tables.rows(connection, ArmRow, run_id=run)]
        buckets, _ = paired(connection, run, arms, arms[0])
    found = [correlation(each) for each in buckets if each.items >= CORRELATED]
    tokens = sum(each.context_tokens for each in buckets) / max(1, len(buckets))
    return questions_a_context(max(found, default=0.0), tokens, QUESTION_TOKENS, most=study.per_context)


def _asked(study: Ask, look: int, place: Place, audience: Audience, *, each: int) -> Asked:
    """Have the first items answered that were not yet; a simulated run is answered from the start."""
    if isinstance(study.servers, Virtual):
        virtual = answering(study, place)
        return answer_all(replace(virtual, asked=Leading(whole=virtual.asked, count=look, each=each)))
    with evaluation(study, place) as (made, _):
        return foreground.asked(replace(made, asked=Leading(whole=made.asked, count=look, each=each)), audience)


def _looked(place: Place, run: str) -> tuple[Ending | None, str]:
    """Say what the answers so far decide."""
    first = grades.summarise(place.database, run).arms[0]
    if first.right < LEAST_IN_A_BUCKET * SETTING.policy.accuracy_margin * first.answered:
        return "hopeless", (
            f"{first.arm} answers {first.right} of {first.answered}: these questions show no difference. Other tasks, shorter lengths, "
            "or a model that can answer them"
        )
    decision = advise(place.database, run, setting=SETTING).decision
    legs = {each.arm: each.safe for each in decision.server if each.arm != decision.reference}
    said = "; ".join(f"{arm}: {_WORDS[leg.state]}, {leg.reason}" for arm, leg in legs.items())
    return ("settled" if all(leg.state in ("yes", "no") for leg in legs.values()) else None), said


_WORDS: Final = {"yes": "as accurate", "no": "worse", "unclear": "open", "untested": "open", "equal": "as accurate"}


def forecast(study: Ask) -> Iterator[tuple[str, Ends]]:
    """Yield how a sequence is likely to end, by what may be true of an arm; simulated."""
    margin = SETTING.policy.accuracy_margin
    for name, change, flips in (
        ("equally accurate", 0.0, PLANNED_DISCORDANCE),
        ("1 pp worse", -0.01, PLANNED_DISCORDANCE),
        ("10 pp worse", -0.10, PLANNED_DISCORDANCE + 0.02),
    ):
        yield name, ends(looks(study), flips=flips, change=change, margin=margin, level=PLANNED_ANSWERS, draws=DRAWS)
