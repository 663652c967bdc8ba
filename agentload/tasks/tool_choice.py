"""Call the right one of many tools, with arguments given somewhere in the context."""

import json
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item, Json
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
from agentload.tasks.parts.grading import json_in

TOOLS: Final = 12
OUTPUT_TOKENS: Final = 128
_VERBS: Final = ("restart", "resize", "archive", "migrate")
_BEFORE: Final = "These are notes on services, each with the arguments that its tool takes.\n"
_AFTER: Final = "\nCall the tool `{name}` with the arguments that the notes give for it."


def generate(
    rng: Random, *, context: int, depth: float | None, tokenizer: Tokenizer = WORD_TOKENS
) -> Item:
    """Offer a dozen tools and ask for a call whose arguments are noted at a depth."""
    services = list(dict.fromkeys(draw.pairs(rng, 2 * TOOLS, joint="_")))[:TOOLS]
    names = [f"{draw.choice(rng, _VERBS)}_{service}" for service in services]
    arguments = dict(zip(_keys(services[0]), draw.numbers(rng, 2, digits=6), strict=True))
    offered = draw.permutation(rng, list(zip(names, services, strict=True)))
    tools = tuple(_tool(name, service) for name, service in offered)
    hidden = HiddenLines(
        before=_BEFORE,
        lines=(_notes(arguments),),
        after=_AFTER.format(name=names[0]),
        output_tokens=OUTPUT_TOKENS,
    )
    # Servers format schemas in their own ways, none much longer than this.
    described = json.dumps(tools)
    frame = tokenizer.frame("tools") + TOOLS * tokenizer.frame("schema")
    left = hidden.room(tokenizer, context, described) - frame
    sample_rng = Random(0)
    sample = _others(sample_rng, draw.pairs(sample_rng, 32, joint="_"))
    count = pieces_that_fit(tokenizer, left, sample)
    others = draw.different(draw.pairs(rng, count, joint="_"), services)
    notes = _others(rng, others)
    wanted = json.dumps({"name": names[0], "arguments": arguments})
    return hidden.item(notes, depth=depth, wanted=wanted, tools=tools)


def grade(answer: str, item: Item) -> Grade:
    """Score half for the tool and half for its arguments; right is the exact call.

    Text without a call scores zero.
    """
    said = json_in(answer)
    wanted = json.loads(item.wanted[0])
    if not isinstance(said, dict) or said.get("name") != wanted["name"]:
        return NOTHING
    is_right = said.get("arguments") == wanted["arguments"]
    return Grade(score=1.0 if is_right else 0.5, right=is_right)


def _keys(service: str) -> tuple[str, str]:
    return f"{service}_zone", f"{service}_ticket"


def _notes(arguments: dict[str, str]) -> str:
    return "\n".join(f'{key} = "{value}"' for key, value in arguments.items())


def _others(rng: Random, services: list[str]) -> list[str]:
    drawn = (draw.numbers(rng, len(services), digits=6) for _ in range(2))
    return [
        _notes(dict(zip(_keys(service), values, strict=True)))
        for service, *values in zip(services, *drawn, strict=True)
    ]


def _tool(name: str, service: str) -> Json:
    properties = {key: {"type": "string"} for key in _keys(service)}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": f"Act on {service}.", "parameters": parameters},
    }
