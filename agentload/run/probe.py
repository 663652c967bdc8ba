"""Try what a comparison rests on: servers as they run, or each feature on a server of its own."""

from pathlib import Path

from agentload.ask.probes import Probed, probed
from agentload.run.arms import read_arms
from agentload.run.audience import Audience, finish
from agentload.run.isolation import Cell, combinations, rows, try_each
from agentload.run.measure import check_replicas
from agentload.run.place import Place
from agentload.run.servers import for_questions
from agentload.store.loader import keep
from agentload.study.kinds import Probe


def probe(study: Probe, audience: Audience) -> Probed:
    """Try servers that run, as a probe says."""
    with read_arms(study.servers).up(noise=True, seed=0) as arms:
        is_forced = study.servers.force
        finish(check_replicas(arms, is_forced=is_forced, notice=audience.notice), audience)
        asked = for_questions(arms, study.request, study.timeouts)
        return finish(probed(asked, tokens=study.prompt_tokens, prompts=study.prompts), audience)


def isolate(study: Probe, place: Place, audience: Audience) -> tuple[Cell, ...]:
    """Try each feature on a server of its own, one after the other;
    what was seen is kept beside the run that is joined, if any.
    """
    arms = read_arms(study.servers).launchable(option="--matrix")
    tried = combinations(for_questions(arms, study.request, study.timeouts), graphs=study.graphs)
    cells = tuple(
        try_each(
            tried,
            tokens=study.prompt_tokens,
            prompts=study.prompts,
            logs=Path(study.servers.logs),
            start_s=study.servers.start_timeout_s,
            told=audience.notice,
        )
    )
    if place.into is not None:
        keep(rows(cells, run_id=place.into), place.database, run_id=place.into, name="isolation")
    return cells
