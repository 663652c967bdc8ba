"""Call a tool where a request insists on one, or where its question names one: with arguments that are read from the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentload.emulator.answers import answer
from agentload.model.profile import ArmProfile
from agentload.serve.fields import Json
from agentload.serve.wanted import Wanted

_QUESTION_CHARS: Final = 2_000
_LONGEST: Final = 1 << 20
_ANY: Final[Mapping[str, object]] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}, "null": None}
"""What an argument is that the prompt says nothing of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Hold the call of a tool; its tokens spell the arguments."""

    name: str
    pieces: tuple[str, ...]


def call(asked: Wanted, texts: Sequence[str], *, arm: ArmProfile, prompt_tokens: int, seed: int) -> Call | None:
    """Return the call that a right answer makes, a wrong one as often as the arm errs, or None where nothing is to be called."""
    tools = [function for tool in asked.tools if isinstance(function := tool.get("function"), Mapping)]
    tool = _chosen(tools, asked.tool_choice, texts[-1][-_QUESTION_CHARS:] if texts else "")
    if tool is None:
        return None
    arguments = _defaults(tool)
    if arguments:
        question = f"Answer as JSON with keys {' and '.join(arguments)}."
        said = answer(arm, (*texts, question), context_tokens=prompt_tokens, seed=seed, limit=_LONGEST)
        if said.is_right is not None:
            return Call(name=str(tool.get("name")), pieces=said.pieces)
    spelled = json.dumps(arguments).split(" ")
    return Call(name=str(tool.get("name")), pieces=(spelled[0], *(f" {word}" for word in spelled[1:])))


def _chosen(tools: Sequence[Json], choice: str | None, question: str) -> Json | None:
    if not tools or choice in (None, "none"):
        return None
    if choice not in ("auto", "required"):
        return next((tool for tool in tools if tool.get("name") == choice), None)
    named = next((tool for tool in tools if _is_named(str(tool.get("name")), question)), None)
    return tools[0] if named is None and choice == "required" else named


def _is_named(name: str, question: str) -> bool:
    """Tell whether a question speaks of a tool by name: in quotes, or beside the word tool or function. Names are common words."""
    word = re.escape(name)
    return re.search(rf"[`'\"]{word}[`'\"]|\b(?:tool|function) {word}\b|\b{word} (?:tool|function)\b", question) is not None


def _defaults(tool: Json) -> dict[str, object]:
    parameters = tool.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {name: _ANY.get(str(schema.get("type"))) if isinstance(schema, Mapping) else None for name, schema in properties.items()}
