"""Say which questions a decision has, which of them may come next, and what each takes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from agentload.decision.block_pairs import BlockPairs
from agentload.decision.canary import Canary
from agentload.decision.carried_load import LoadTrials
from agentload.decision.checks import Checks
from agentload.decision.forecast import Forecast, LookPrice, Terms, forecast
from agentload.decision.known import Known
from agentload.decision.ledger import GRADED, Ledger
from agentload.decision.look import Criterion, Look
from agentload.decision.means import Means
from agentload.decision.paired_answers import PairedAnswers, Screen
from agentload.decision.question_kind import QuestionKind
from agentload.decision.sequence import next_looks, settling_look
from agentload.decision.single_session import SingleSession
from agentload.decision.twin import Twins
from agentload.run.servers import Sizes


class Agenda:
    """Hold the questions of one decision, all asked with the same means."""

    def __init__(
        self, means: Means, *, aside: str | None, learn: Callable[[Mapping[str, Sizes]], None]
    ) -> None:
        """Make the questions.

        *learn* receives how much servers hold and take; *aside* says why there are no twins.
        """
        self.means, self._learn = means, learn
        self.twins = Twins(means=means, aside=aside)
        self.canary, self._screen = Canary(means=means), Screen(means=means)
        self._single = SingleSession(means=means)
        self._answers = PairedAnswers(means=means)
        self._checks = Checks(means=means, canary=self.canary, learn=learn)
        self.of: dict[Criterion, QuestionKind] = {
            "checks": self._checks,
            "service level": self._single,
            "canary": self.canary,
            "screen": self._screen,
            "speed": BlockPairs(means=means, learn=learn),
            "step times": self.twins,
            "capacity": LoadTrials(means=means, twins=self.twins),
            "accuracy": self._answers,
        }

    def asked_with(self, means: Means) -> "Agenda":
        """Return the questions with other *means*; what the checks have seen stays."""
        made = Agenda(means, aside=self.twins.aside, learn=self._learn)
        made._checks = replace(self._checks, means=means, canary=made.canary)
        made.of["checks"] = made._checks
        return made

    def next_looks(self, known: Known) -> Iterator[Look]:
        """Yield what could be asked next, the best thing first; the checks before all else."""
        if known.decision is None and not known.ledger.asked:
            yield Look(criterion="checks")
            return
        level, cheap = self._single.is_wanted(known.ledger), self.cheap(known.ledger)
        yield from next_looks(known, capacity=self.means.searches, level=level, cheap=cheap)

    def cheap(self, asked: Ledger, asking: Criterion | None = None) -> tuple[Look, ...]:
        """Return what is asked before speed is refined, for a small share of the budget."""
        looks = list[Look]()
        if self.canary.look is not None and asking != "canary" and not asked.looks("canary"):
            looks.append(self.canary.look)
        if self._screen.is_wanted(asked, asking=asking):
            looks.append(Look(criterion="screen"))
        return tuple(looks)

    def price(self, look: Look, known: Known) -> LookPrice:
        """Return what a question takes beyond what the run has already.

        The minutes follow the pace of earlier questions of its kind.
        """
        price = self.of[look.criterion].price(look, known)
        return replace(price, minutes=_pace(look, known) * price.minutes)

    def question_pace(self, known: Known) -> float | None:
        """Return how much longer than assumed the questions take that would settle accuracy next.

        None where nothing is to be asked.
        """
        looks = [look for look in self.next_looks(known) if look.criterion == "accuracy"]
        if not looks:
            return None
        last = settling_look(known, looks[0])
        return _pace(last, known) * self._answers.pace(last)

    def forecast(self, known: Known) -> tuple[Forecast, ...]:
        """Return what the budget can settle."""
        means = self.means
        terms = Terms(
            budget_minutes=means.study.budget_s / 60,
            min_change=means.study.min_change,
            accuracy_margin=means.study.accuracy_margin,
            together=means.together,
            capacity=means.searches,
            rivals=len(means.arms) - 1,
            start_spread=means.start_spread,
            level=self._single.is_wanted(known.ledger),
            starts=None if means.is_launching else means.replicas,
            lengths=means.lengths,
            canary=self.canary.look,
        )
        return forecast(lambda look: self.price(look, known), terms)


def _pace(look: Look, known: Known) -> float:
    return known.ledger.pace(*GRADED) if look.criterion in GRADED else 1.0
