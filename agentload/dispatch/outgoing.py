"""Make the commands for a turn: prepare it, send it, send it again, or skip it for good."""

from collections.abc import Iterator
from dataclasses import replace

from agentload.dispatch.arrivals import rng_of
from agentload.dispatch.naming import request_id
from agentload.model.commands import Call, Prepare, Send, Skip, Watch
from agentload.model.plan import Plan, Play
from agentload.model.trace import Session


class Outgoing:
    """Make the commands of one play; equal calls give equal commands."""

    def __init__(self, plan: Plan, play: Play) -> None:
        self._plan = plan
        self._play = play
        self._salt = play.salt + play.own_salt

    def prepare(self, call: Call, *, connects: bool = True) -> Prepare:
        """Return the command to prepare the first attempt of a call."""
        return Prepare(
            request_id=self._name(call, 0),
            call=call,
            arm=self._play.arm,
            salt=self._salt,
            connects=connects,
        )

    def send(self, call: Call, *, due_ns: int, released_ns: int, tail: bool) -> Send:
        """Return the command to send the first attempt of a call."""
        return Send(
            request_id=self._name(call, 0),
            call=call,
            attempt=0,
            retry_of=None,
            arm=self._play.arm,
            block=self._play.block,
            pair=self._play.pair,
            due_ns=due_ns,
            released_ns=released_ns,
            salt=self._salt,
            limits=self._plan.limits,
            watch=self._watch(call),
            tail=tail,
        )

    def again(self, failed: Send, *, due_ns: int, released_ns: int, tail: bool) -> Send:
        """Return the command to send the attempt after one that failed."""
        attempt = failed.attempt + 1
        return replace(
            failed,
            request_id=self._name(failed.call, attempt),
            attempt=attempt,
            retry_of=failed.request_id,
            due_ns=due_ns,
            released_ns=released_ns,
            tail=tail,
        )

    def skips(self, session: Session, *, since: int, at_ns: int) -> Iterator[Skip]:
        """Yield a session's turns from *since* on as calls, without context, never sent."""
        for turn in range(since, len(session.turns)):
            spec = session.turns[turn]
            call = Call(
                session=session.session,
                turn=turn,
                workload=session.workload,
                context=(),
                context_tokens=sum(segment.tokens for segment in spec.add),
                output=spec.output,
                model=spec.model,
            )
            yield Skip(
                send=replace(
                    self.send(call, due_ns=at_ns, released_ns=at_ns, tail=False), watch=None
                )
            )

    def _name(self, call: Call, attempt: int) -> str:
        return request_id(self._plan.run, self._play, call.session, call.turn, attempt)

    def _watch(self, call: Call) -> Watch | None:
        """Draw whether a stream is cancelled, and after how many tokens; equal on all arms."""
        share = self._plan.load.cancel_share
        if share == 0:
            return None
        rng = rng_of(self._plan.seed, "cancel", call.session, call.turn)
        if rng.random() >= share:
            return None
        return Watch(cancel_after_tokens=1 + int(rng.random() * call.output))
