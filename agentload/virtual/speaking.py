"""What an emulated model answers in virtual time, for the few calls whose text somebody reads: the same that it says behind HTTP."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentload.emulator.answers import answer
from agentload.model.commands import Send
from agentload.model.profile import ArmProfile
from agentload.prompts.count import pieces
from agentload.prompts.renderer import Renderer


class Speaker:
    """Render a prompt and say what the arm's model answers to it."""

    def __init__(self, arms: Mapping[str, ArmProfile], renderer: Renderer, *, seed: int) -> None:
        self._arms = arms
        self._renderer = renderer
        self._seed = seed

    def says(self, send: Send, tokens: int) -> str:
        """Return the answer to a call, in so many tokens."""
        prompt = self._renderer.render(send.call.context, salt=send.salt)
        tools = None if prompt.tools is None else msgspec.json.decode(prompt.tools)
        texts = [piece for piece in pieces(msgspec.json.decode(prompt.messages), tools) if isinstance(piece, str)]
        said = answer(self._arms[send.arm], texts, context_tokens=prompt.tokens, seed=self._seed, limit=tokens, is_forced=True)
        return "".join(said.pieces)
