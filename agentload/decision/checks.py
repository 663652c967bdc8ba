"""Check first what costs nothing: whether the servers are separate, and as stated.

Their caches are tried on contexts like the user's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agentload.ask.plain import TIMEOUT_S
from agentload.ask.probes import Probed
from agentload.decision.budget import BudgetLimit
from agentload.decision.canary import NO_CANARY, Canary
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.look import Look
from agentload.decision.means import Means
from agentload.errors import EndpointError
from agentload.model.rows import FingerprintRow
from agentload.run import door
from agentload.run.known import began_as
from agentload.run.servers import Sizes, said_sizes, sizes
from agentload.store.places import journal_rows
from agentload.study.kinds import Probe
from agentload.study.parts import Virtual

PROMPTS: Final = 11
"""Prompts to each arm.

One is sent twice for its cache, one was sent to another arm, and some must have equal answers.
"""
PROMPT_S: Final = 1.0
TENS: Final = 10


@dataclass(kw_only=True)
class Checks:
    """Ask what can be known before anything is measured."""

    means: Means
    canary: Canary
    learn: Callable[[Mapping[str, Sizes]], None]
    """Receives how much the servers hold and take."""
    _probed: Probed | None = None

    def price(self, _: Look, __: Known) -> LookPrice:
        """Return what a few short prompts take; servers that do not run yet are not asked."""
        if self.means.is_virtual or self.means.is_launching:
            return LookPrice(minutes=0.0, calls=0)
        calls = len(self.means.arms) * PROMPTS
        return LookPrice(minutes=calls * PROMPT_S / 60, calls=calls)

    def ask(self, _: Look, __: Known, limit: BudgetLimit) -> float | None:
        """Probe the servers.

        Raises EndpointError where what is measured on them would be no comparison.
        """
        means, servers = self.means, self.means.study.servers
        if isinstance(servers, Virtual):
            return 0.0
        if means.is_launching:
            return None
        timeouts = means.patience(TIMEOUT_S)
        study = Probe(servers=servers, request=means.study.request, timeouts=timeouts)
        self._probed = probed = door.carry_out(study, means.place, limit.limited_audience())
        if probed.mismatches and not servers.force:
            raise EndpointError(
                "; ".join(probed.mismatches),
                hint="fix the server, the arm's name or the arms file; --force measures it",
            )
        if shared := [each.arm for each in probed.crossed if each.verdict == "hit"]:
            raise EndpointError(
                f"{', '.join(shared)} has in its cache what another arm was asked: both are "
                "one server, or behind one router",
                hint="give each arm a server of its own",
            )
        if probed.silent and not servers.force:
            raise EndpointError(
                "; ".join(f"{arm} answers no prompt: {why}" for arm, why in probed.silent.items()),
                hint="its log says why; agentload probe asks again; --force measures all the same",
            )
        self.learn(server_sizes(means))
        for trouble in probed.troubles():
            means.audience.notice(f"warning: {trouble}")
        return None

    def said(self, known: Known) -> str:
        """Say whether caches work, and how many of the longest contexts fit.

        Where all fit, a larger pool is worth nothing.
        """
        means, said = self.means, []
        if self._probed is not None:
            hit = [each.arm for each in self._probed.reuse if each.verdict == "hit"]
            works = f"the prefix cache works on {', '.join(hit)}"
            said.append(works if hit else "no prefix cache was seen to work")
        pools = {arm: each.pool for arm, each in means.sizes.items() if each.pool is not None}
        if pools:
            counts = {arm: tokens / means.longest for arm, tokens in pools.items()}
            held = (f"{arm}'s {_at_once(count)}" for arm, count in counts.items())
            longest = f"the longest contexts ({means.longest:,} tokens)"
            said.append(f"KV pools hold this many of {longest} at once: {', '.join(held)}")
        if means.is_cut and means.narrow(known.pairs) is None:
            said.append(means.cut_said)
        if self.canary.look is None:
            said.append(NO_CANARY)
        return "; ".join(said) or "servers are started when they are needed"


def _at_once(count: float) -> str:
    """Print how many contexts a pool holds: whole ones, if it holds several."""
    return f"{count:.1f}" if count < TENS else f"{math.floor(count):,}"


def server_sizes(means: Means) -> Mapping[str, Sizes]:
    """Return how much servers hold and take, as they say now or said when they were started."""
    servers = means.study.servers
    if isinstance(servers, Virtual):
        return means.sizes
    if means.is_launching:
        rows = journal_rows(
            means.place.database, means.run, kinds=(FingerprintRow,), damaged=lambda _: None
        )
        found = {arm: said_sizes(facts) for arm, facts in began_as(rows).items()}
        return found or means.sizes
    with means.servers.up(noise=servers.noise, seed=means.study.seed) as up:
        return sizes(up)
