"""Ask first what costs nothing: are the servers two, what the arms
file says, and do their caches work on contexts like the user's?
"""

from dataclasses import dataclass
from typing import Final

from agentload.ask.probes import Probed
from agentload.decision.canary import NO_CANARY, Canary
from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage
from agentload.errors import EndpointError
from agentload.run import foreground
from agentload.run.known import began_as
from agentload.run.prepared import endpoints_of
from agentload.run.servers import reached, said_sizes, sizes
from agentload.store.places import journal_rows
from agentload.study.kinds import Probe
from agentload.study.parts import Virtual

PROMPTS: Final = 11
"""Of each arm: one twice for its cache, one that
another arm had, and some whose answers must agree.
"""
PROMPT_S: Final = 1.0


@dataclass(kw_only=True)
class Checks:
    """What is known before anything is measured."""

    means: Means
    canary: Canary
    _probed: Probed | None = None

    def price(self, _: Stage) -> Price:
        """Return what a few short prompts take; servers that do not run yet are not asked."""
        if self.means.is_virtual or self.means.is_launching:
            return Price(minutes=0.0, calls=0)
        calls = len(self.means.arms) * PROMPTS
        return Price(minutes=calls * PROMPT_S / 60, calls=calls)

    def ask(self, _: Stage) -> float | None:
        """Try the servers. Raises EndpointError where
        what is measured on them would be no comparison.
        """
        servers = self.means.study.servers
        if isinstance(servers, Virtual):
            return 0.0
        if self.means.is_launching:
            return None
        self._probed = probed = foreground.probe(
            Probe(
                servers=servers,
                request=self.means.study.request,
                timeouts=self.means.study.timeouts,
            ),
            self.means.audience,
        )
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
        self.learn_sizes()
        for trouble in probed.troubles():
            self.means.audience.notice(f"warning: {trouble}")
        return None

    def said(self, _: Known | None) -> str:
        """Say whether caches work, and how many of the longest
        contexts fit: where all do, a larger pool is worth nothing.
        """
        said = []
        if self._probed is not None:
            hit = [each.arm for each in self._probed.reuse if each.verdict == "hit"]
            said.append(
                f"the prefix cache works on {', '.join(hit)}"
                if hit
                else "no prefix cache was seen to work"
            )
        pools = {arm: each.pool for arm, each in self.means.sizes.items()}
        if fits := [
            f"{arm} {tokens / self.means.longest:.1f}"
            for arm, tokens in pools.items()
            if tokens is not None
        ]:
            said.append(
                f"the KV pools hold {', '.join(fits)} of the longest contexts "
                f"({self.means.longest:,} tokens)"
            )
        if self.means.is_cut and self.means.narrow is None:
            said.append(self.means.cut_said)
        if self.canary.stage is None:
            said.append(NO_CANARY)
        return "; ".join(said) or "servers are started when they are needed"

    def learn_sizes(self) -> None:
        """Ask servers that run how much they hold and take; of
        those that are started in turn, read what they said.
        """
        means, servers = self.means, self.means.study.servers
        if isinstance(servers, Virtual):
            return
        if means.is_launching:
            rows = journal_rows(means.place.database, means.run, damaged=lambda _: None)
            found = {arm: said_sizes(facts) for arm, facts in began_as(rows).items()}
            means.sizes = found or means.sizes
            return
        with reached(endpoints_of(servers), noise=servers.noise, seed=means.study.seed) as up:
            means.sizes = sizes(up)
