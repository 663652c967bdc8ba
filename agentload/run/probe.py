"""Probe running servers: does each reuse prefixes, from a cache of its own, and answer alike?"""

from agentload.ask.probes import Probed, probe_arms
from agentload.run.arms import read_arms
from agentload.run.audience import Audience, finish
from agentload.run.measure import check_replicas
from agentload.run.servers import for_questions
from agentload.study.kinds import Probe


def probe(study: Probe, audience: Audience) -> Probed:
    """Send each server's probes; refuse before that an arm whose replicas differ."""
    with read_arms(study.servers).up(noise=True, seed=0) as arms:
        is_forced = study.servers.force
        finish(check_replicas(arms, is_forced=is_forced, notice=audience.notice), audience)
        asked = for_questions(arms, study.request, study.timeouts)
        return finish(
            probe_arms(asked, tokens=study.prompt_tokens, prompts=study.prompts), audience
        )
