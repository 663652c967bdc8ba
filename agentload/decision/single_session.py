"""Ask early whether each arm meets the service level at all, by trials of a single session.

They cost a few minutes. Nothing queues and nothing is evicted while one session runs, so its waits
say nothing and are cut short. An arm that misses the level with one session misses it under any
load, however fast or cheap the arm is.
"""

from typing import Final

import msgspec

from agentload.decision.budget import BudgetLimit
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import Look
from agentload.decision.means import Means
from agentload.dispatch.arrivals import rng_of
from agentload.evidence.capacity import ALONE
from agentload.model.record import Record
from agentload.run import door
from agentload.run.capacity import Chosen
from agentload.run.find import SearchTrials
from agentload.study.kinds import Search
from agentload.study.parts import KINDS

DRAWS: Final = 3
"""Draws of sessions, the same on every arm: one session may be an exception."""
SHARE: Final = 0.05
"""Share of the budget that the trials take."""
TRIAL_S: Final = (15.0, 30.0)
"""Seconds of a trial, at least and at most."""
WAIT_S: Final = 1.0
SAID: Final = {"yes": "meets it", "no": "misses it", "unclear": "may meet it"}


class SingleSession(Record):
    """Run the trials of a single session."""

    means: Means

    def is_wanted(self, ledger: Ledger) -> bool:
        """Tell whether there is a service level that was not asked about yet."""
        return self.means.study.slo is not None and not ledger.looks("service level")

    def price(self, _: Look, __: Known) -> LookPrice:
        """Return what the trials take."""
        trials = DRAWS * len(self.means.arms)
        return LookPrice(minutes=trials * self._trial_s / 60 + self.means.starts_minutes)

    def ask(self, look: Look, known: Known, limit: BudgetLimit) -> float | None:
        """Play a session on each arm, a few times."""
        means = self.means
        seeds = [rng_of(means.study.seed, "alone", number) for number in range(DRAWS)]
        draws = [
            Chosen(load=1.0, seed=seed.getrandbits(32), worth=1.0, error=0.0) for seed in seeds
        ]
        trials = SearchTrials(loads=dict.fromkeys(means.arms, draws), probe=ALONE)
        door.carry_out(self._study, means.beside, limit.limited_audience(), adapt=lambda _: trials)
        return self.price(look, known).minutes if means.is_virtual else None

    def said(self, known: Known) -> str:
        """Say which arms meet the level with a single session, and what the others miss."""
        levels = () if known.decision is None else known.decision.service_levels
        told = []
        for each in levels:
            if each.state in SAID:
                why = f" ({each.reason})" if each.reason else ""
                told.append(f"{each.arm} {SAID[each.state]}{why}")
        return "; ".join(told) or "not every arm misses it alone: the decision continues"

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
