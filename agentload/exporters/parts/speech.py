"""Write the contexts of a trace as words: its own if they were kept, drawn ones otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from agentload.model.trace import Header, Role, Segment
from agentload.prompts.renderer import Renderer

Texts = Mapping[str, str]
_PAD: Final = 8
"""Tokens of a renderer's salt: they go into a separate message, which is left out."""


class ExportRenderer:
    """The renderer of one export."""

    def __init__(self, header: Header, texts: Texts) -> None:
        self._renderer = Renderer(seed=header.seed, block=header.block)
        self._texts = texts

    def messages(self, segments: Sequence[Segment]) -> tuple[list[msgspec.Raw], msgspec.Raw | None]:
        """Return the messages and the tools of a context, as JSON."""
        # The pad takes the salt, in a message of its own: its role is not that of the next one.
        first = next((segment.role for segment in segments if segment.role != "tools"), "user")
        role: Role = "user" if first == "system" else "system"
        pad = Segment(role=role, tokens=_PAD, key="pad")
        prompt = self._renderer.render((pad, *map(self._with_text, segments)), salt="")
        _, *spoken = msgspec.json.decode(prompt.messages, type=list[msgspec.Raw])
        tools = None if prompt.tools is None else msgspec.Raw(prompt.tools)
        return spoken, tools

    def text(self, segment: Segment) -> str:
        """Return one segment's words."""
        spoken, _ = self.messages([replace(segment, role="user")])
        content = msgspec.json.decode(spoken[0], type=dict[str, object])["content"]
        return str(content)

    def _with_text(self, segment: Segment) -> Segment:
        """Return a segment with its text, if that was kept."""
        if not isinstance(segment.key, str) or segment.role in {"tools", "image"}:
            return segment
        return replace(segment, text=self._texts.get(segment.key, segment.text))
