"""Turn a call's context into the engine's runs: which texts share KV blocks, without any text.

Only for the few calls whose answer is read, the prompt is rendered as text and
answered as the emulated model answers behind HTTP.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from typing import Final, NamedTuple

import msgspec

from agentload.dispatch.naming import SALT_TOKENS
from agentload.emulator.answers import answer
from agentload.emulator.encoder import IMAGE
from agentload.model.commands import Send
from agentload.model.profile import ArmProfile
from agentload.model.trace import Segment
from agentload.prompts.count import pieces
from agentload.prompts.renderer import Renderer

Run = tuple[str, int]
LEADING: Final = frozenset({"system", "tools"})
"""Roles whose segments a server puts first, wherever they are in the context."""


class _Converted(NamedTuple):
    """A context as it was sent last, and its runs."""

    salt: str
    segments: tuple[Segment, ...]
    runs: tuple[Run, ...]


_NOTHING: Final = _Converted("", (), ())


class Contents:
    """Turn contexts into runs; as a session's context grows, only what is new is converted."""

    def __init__(self, *, block: int) -> None:
        self._block = block
        self._known: dict[tuple[str, str], _Converted] = {}
        """What was converted last, by arm and session."""

    def runs(self, send: Send) -> tuple[Run, ...]:
        """Return the runs of a call's prompt, in the order in which a server sees them."""
        call = send.call
        place = (send.arm, call.session)
        salt, segments, runs = self._known.get(place, _NOTHING)
        size = len(segments)
        added = call.context[size:]
        has_grown = salt == send.salt and call.context[:size] == segments
        if runs and has_grown and LEADING.isdisjoint([segment.role for segment in added]):
            runs += self._runs(added)
        else:
            ordered = in_server_order(call.context)
            runs = with_salt(self._runs(ordered), send.salt)
        self._known[place] = _Converted(send.salt, call.context, runs)
        return runs

    def forget(self, arm: str, session: str) -> None:
        """Drop what is kept of a session that is over on an arm."""
        self._known.pop((arm, session), None)

    def _runs(self, segments: Iterable[Segment]) -> tuple[Run, ...]:
        runs: list[Run] = []
        for segment in segments:
            match segment.key:
                case str() as key:
                    if segment.plant is not None:
                        key = f"{key}\x1f{segment.plant}\x1f{segment.at}"
                    elif segment.pixels is not None:
                        key = f"{IMAGE}{key}\x1f{segment.pixels}"
                    runs.append((key, segment.tokens))
                case (first, _):
                    left = segment.tokens
                    while left > 0:
                        size = min(self._block, left)
                        runs.append((f"#{first}", size))
                        first += 1
                        left -= size
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
    """Return runs whose first tokens are replaced by the salt; an image becomes another one."""
    if not runs:
        return runs
    identity, tokens = runs[0]
    rest = runs[1:]
    if identity.startswith(IMAGE):
        return (f"{identity}\x1f{salt}", tokens), *rest
    head = (f"salt\x1f{salt}", min(SALT_TOKENS, tokens))
    if tokens > SALT_TOKENS:
        return head, (identity, tokens - SALT_TOKENS), *rest
    return head, *rest


class Speaker:
    """Render a prompt and return what the arm's model answers to it."""

    def __init__(self, arms: Mapping[str, ArmProfile], renderer: Renderer, *, seed: int) -> None:
        self._arms = arms
        self._renderer = renderer
        self._seed = seed

    def says(self, send: Send, tokens: int) -> str:
        """Return the answer to a call, exactly *tokens* tokens long."""
        prompt = self._renderer.render(send.call.context, salt=send.salt)
        messages = msgspec.json.decode(prompt.messages)
        tools = None if prompt.tools is None else msgspec.json.decode(prompt.tools)
        texts = [piece for piece in pieces(messages, tools) if isinstance(piece, str)]
        said = answer(
            self._arms[send.arm],
            texts,
            context_tokens=prompt.tokens,
            seed=self._seed,
            limit=tokens,
            is_forced=True,
        )
        return "".join(said.pieces)
