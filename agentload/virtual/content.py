"""Turn a call's context into the engine's runs: which texts share KV blocks, without any text.

Only for the few calls whose answer is read, the prompt is rendered as text and
answered as the emulated model answers behind HTTP.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from typing import Final

import msgspec

from agentload.dispatch.naming import SALT_TOKENS
from agentload.emulator.answers import answer
from agentload.model.commands import Send
from agentload.model.profile import ArmProfile
from agentload.model.trace import Segment
from agentload.prompts.count import pieces
from agentload.prompts.renderer import Renderer

Run = tuple[str, int]
LEADING: Final = frozenset({"system", "tools"})
"""Roles whose segments a server puts first, wherever they are in the context."""


class Contents:
    """Turn contexts into runs; as a session's context grows, only what is new is converted."""

    def __init__(self, *, block: int) -> None:
        self._block = block
        self._known: dict[tuple[str, str], tuple[str, tuple[Segment, ...], tuple[Run, ...]]] = {}

    def runs(self, send: Send) -> tuple[Run, ...]:
        """Return the runs of a call's prompt, in the order in which a server sees them."""
        call = send.call
        place = (send.arm, call.session)
        salt, segments, runs = self._known.get(place, ("", (), ()))
        size = len(segments)
        added = call.context[size:]
        if (
            runs
            and salt == send.salt
            and call.context[:size] == segments
            and LEADING.isdisjoint([segment.role for segment in added])
        ):
            runs += self._runs(added)
        else:
            runs = with_salt(self._runs(in_server_order(call.context)), send.salt)
        self._known[place] = send.salt, call.context, runs
        return runs

    def forget(self, send: Send) -> None:
        """Drop what is kept of a session that is over."""
        self._known.pop((send.arm, send.call.session), None)

    def _runs(self, segments: Iterable[Segment]) -> tuple[Run, ...]:
        runs: list[Run] = []
        for segment in segments:
            match segment.key:
                case str() as key:
                    if segment.plant is not None:
                        key = f"{key}\x1f{segment.plant}\x1f{segment.at}"
                    elif segment.size is not None:
                        key = f"{key}\x1f{segment.size}"
                    runs.append((key, segment.tokens))
                case (first, _):
                    for position, start in enumerate(range(0, segment.tokens, self._block)):
                        runs.append(
                            (f"#{first + position}", min(self._block, segment.tokens - start))
                        )
        return tuple(runs)


def in_server_order(context: tuple[Segment, ...]) -> Iterable[Segment]:
    """Order as chat templates do: leading system text, tool schemas, then the rest."""
    lead = tuple(takewhile(lambda segment: segment.role in LEADING, context))
    rest = context[len(lead) :]
    return chain(
        (s for s in lead if s.role == "system"),
        (s for s in context if s.role == "tools"),
        (s for s in rest if s.role != "tools"),
    )


def with_salt(runs: tuple[Run, ...], salt: str) -> tuple[Run, ...]:
    """Return runs whose first tokens are replaced by the salt."""
    if not runs:
        return runs
    identity, tokens = runs[0]
    head = (f"salt\x1f{salt}", min(SALT_TOKENS, tokens))
    if tokens > SALT_TOKENS:
        return head, (identity, tokens - SALT_TOKENS), *runs[1:]
    return head, *runs[1:]


class Speaker:
    """Render a prompt and return what the arm's model answers to it."""

    def __init__(self, arms: Mapping[str, ArmProfile], renderer: Renderer, *, seed: int) -> None:
        self._arms = arms
        self._renderer = renderer
        self._seed = seed

    def says(self, send: Send, tokens: int) -> str:
        """Return the answer to a call, exactly *tokens* tokens long."""
        prompt = self._renderer.render(send.call.context, salt=send.salt)
        tools = None if prompt.tools is None else msgspec.json.decode(prompt.tools)
        texts = [
            piece
            for piece in pieces(msgspec.json.decode(prompt.messages), tools)
            if isinstance(piece, str)
        ]
        said = answer(
            self._arms[send.arm],
            texts,
            context_tokens=prompt.tokens,
            seed=self._seed,
            limit=tokens,
            is_forced=True,
        )
        return "".join(said.pieces)
