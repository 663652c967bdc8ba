"""Divide a run into stages in which no arm changes machines; wait for servers in between."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agentload.dispatch.stretches import stretches, where
from agentload.endpoints.endpoint import Endpoint, on
from agentload.endpoints.facts import COMMANDED, Facts
from agentload.endpoints.identity import identify
from agentload.errors import EndpointError
from agentload.model.plan import Plan, Round
from agentload.model.record import Record
from agentload.run.past import Past, needless

PATIENCE_S: Final = 3600.0
LOOK_S: Final = 2.0


class Stage(Record):
    """Hold the rounds between two exchanges, and where the arms are meanwhile."""

    rounds: tuple[Round, ...]
    endpoints: tuple[Endpoint, ...]
    taken_from: Mapping[str, str]
    """For each arm that comes to the address of another arm: that other arm."""

    @property
    def pairs(self) -> frozenset[int]:
        """Pairs that are played in the stage."""
        return frozenset(play.pair for round_ in self.rounds for play in round_.plays)

    def left(self, before: Past) -> tuple[Round, ...]:
        """Return the rounds that earlier parts have not finished."""
        done = needless((play for round_ in self.rounds for play in round_.plays), before.done)
        return tuple(
            round_ for round_ in self.rounds if any(play.pair not in done for play in round_.plays)
        )


def stages(plan: Plan, endpoints: Sequence[Endpoint]) -> tuple[Stage, ...]:
    """Return a plan's stages; one, with the endpoints as they are, where no arm moves."""
    out: list[Stage] = []
    for rounds in stretches(plan.rounds):
        at = where(rounds)
        placed = tuple(on(endpoint, at.get(endpoint.name), endpoints) for endpoint in endpoints)
        before = {endpoint.url: endpoint.name for endpoint in out[-1].endpoints} if out else {}
        taken = {
            each.name: before[each.url]
            for each in placed
            if before.get(each.url, each.name) != each.name
        }
        out.append(Stage(rounds=rounds, endpoints=placed, taken_from=taken))
    return tuple(out)


def is_over(steps: Sequence[Stage], number: int, before: Past) -> bool:
    """Tell whether a stage has nothing left to play.

    Either all of it is done, or its servers have been where a later stage needs them. The last
    stage is never over: it says how the run ended.
    """
    later = steps[number + 1 :]
    begun = before.done | before.lost.keys()
    return bool(later) and (
        steps[number].pairs <= before.done
        or any(step.taken_from and step.pairs & begun for step in later)
    )


def is_exchanged(arm: Facts, there_before: Facts, now: Facts) -> bool:
    """Tell whether the server at an address, which was another arm's, is *arm* now.

    Raises EndpointError where the facts cannot show that.
    """
    if (
        all(arm.get(name) == there_before.get(name) for name in COMMANDED)
        and now.get("process_start_s") is None
    ):
        raise EndpointError(
            "both servers look alike, and neither says when it was started: an exchange "
            "cannot be seen",
            hint="exchange them while the run is stopped, then resume with --resume",
        )
    is_another = now.get("process_start_s") is None or now["process_start_s"] != there_before.get(
        "process_start_s"
    )
    return is_another and all(arm.get(name) == now.get(name) for name in COMMANDED)


async def wait_for_exchange(
    stage: Stage, said: Mapping[str, Facts], *, notice: Callable[[str], None], goes_on: str
) -> None:
    """Wait until the servers of a stage are at their addresses.

    *said* is what each arm's server said of itself before. Raises EndpointError after `PATIENCE_S`.
    """
    until_s = time.monotonic() + PATIENCE_S
    waiting = [each for each in stage.endpoints if each.name in stage.taken_from]
    wanted = ", ".join(f"{each.name} at {each.shown_url}" for each in waiting)
    notice(
        f"half way: exchange the servers now, to have {wanted}; waiting "
        f"{PATIENCE_S / 60:.0f} min for them"
    )
    while waiting:
        waiting = [
            each for each in waiting if not await _is_there(each, said, stage.taken_from[each.name])
        ]
        if waiting and time.monotonic() + LOOK_S > until_s:
            raise EndpointError(
                f"{waiting[0].name} is not at {waiting[0].shown_url} after "
                f"{PATIENCE_S / 60:.0f} min",
                hint=f"exchange the servers, then: {goes_on}",
            )
        if waiting:
            await asyncio.sleep(LOOK_S)
    notice("the servers were exchanged: going on")


async def _is_there(endpoint: Endpoint, said: Mapping[str, Facts], before: str) -> bool:
    try:
        now = await identify(endpoint)
    except EndpointError:  # it is being started
        return False
    return is_exchanged(said.get(endpoint.name, {}), said.get(before, {}), now.facts())
