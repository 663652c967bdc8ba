"""Ask early whether each arm meets the service level at
all: trials of a single session, which cost a few minutes.

Nothing queues and nothing is evicted while one session runs, so its waits say nothing and are cut
short. What misses the level alone misses it under any load, however fast or cheap it is.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage
from agentload.dispatch.arrivals import seeded
from agentload.evidence.capacity import ALONE
from agentload.run import foreground
from agentload.run.capacity import Chosen
from agentload.study.kinds import Search
from agentload.study.parts import KINDS

DRAWS: Final = 3
"""Of sessions, the same on every arm: one may be an exception."""
SHARE: Final = 0.05
"""Of the budget."""
TRIAL_S: Final = (15.0, 30.0)
"""Length of a trial, at least and at most."""
WAIT_S: Final = 1.0


@dataclass(kw_only=True)
class Level:
    """The trials of a single session."""

    means: Means

    @property
    def is_wanted(self) -> bool:
        """Tell whether there is a service level, and nobody asked yet whether it is met at all."""
        asked = self.means.ledger.looks("service level")
        return self.means.study.slo is not None and not asked

    def price(self, _: Stage) -> Price:
        """Return what the trials take."""
        trials = DRAWS * len(self.means.arms)
        return Price(minutes=trials * self._trial_s / 60 + self.means.starts_minutes)

    def ask(self, stage: Stage) -> float | None:
        """Play a session on each arm, a few times."""
        means = self.means
        draws = [
            Chosen(load=1.0, seed=self._seed(number), worth=1.0, error=0.0)
            for number in range(DRAWS)
        ]
        foreground.searched(
            self._study,
            means.beside,
            means.audience,
            loads=dict.fromkeys(means.arms, draws),
            probe=ALONE,
        )
        return self.price(stage).minutes if means.is_virtual else None

    def said(self, known: Known | None) -> str:
        """Say which arms meet the level with a single session, and what the others miss."""
        found = () if known is None else known.decision.service_levels
        said = {"yes": "meets it", "no": "misses it", "unclear": "may meet it"}
        told = [
            f"{each.arm} {said[each.state]}{f' ({each.reason})' if each.reason else ''}"
            for each in found
            if each.state in said
        ]
        return "; ".join(told) or "no reason to end here"

    @property
    def _trial_s(self) -> float:
        share = SHARE * self.means.study.budget_s / (DRAWS * len(self.means.arms))
        return float(round(max(TRIAL_S[0], min(TRIAL_S[1], share))))

    @property
    def _study(self) -> Search:
        study = self.means.search(self._trial_s)
        waits = dict.fromkeys(KINDS, WAIT_S)
        return msgspec.structs.replace(
            study, load=msgspec.structs.replace(study.load, wait_cap_s=waits)
        )

    def _seed(self, number: int) -> int:
        return seeded(self.means.study.seed, "alone", number).getrandbits(32)
