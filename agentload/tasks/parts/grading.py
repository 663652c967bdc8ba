"""Grade answers by RULER's rule, guarded against echoes, by checks, or by a recorded answer."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from agentload.documents import UNREADABLE
from agentload.model import schema
from agentload.model.check import Check, Equals, Has, JsonSchema, Length, Matches, Number, ToolCall
from agentload.prompts.messages import calls_in
from agentload.tasks import NOTHING, Grade, Item, texts

ECHO_WORDS: Final = 24
"""An answer that repeats this many words of the context in a row is an echo.

A needle with its question has about 20.
"""
MOST_NESTED: Final = 10_000
"""Most objects and lists of a JSON text; to parse them takes some 5 ms, and holds up the loop."""
_FENCED: Final = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WORD: Final = re.compile(r"[\w./-]{4,}\w")
"""Long enough to be an identifier."""
_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


def string_match_all(answer: str, wanted: Sequence[str]) -> float:
    """Return the share of wanted texts that the answer contains, in any case: RULER's score."""
    said = answer.lower()
    found = [each for each in wanted if each.lower() in said]
    return len(found) / len(wanted)


def holds(answer: str, wanted: str) -> bool:
    """Return whether the answer contains the text as a word of its own: 12 is not in 123."""
    return re.search(rf"(?<![\w-]){re.escape(wanted)}(?![\w-])", answer, re.IGNORECASE) is not None


def is_set(answer: str, wanted: Iterable[str], shape: re.Pattern[str]) -> bool:
    """Return whether the answer's matches of *shape* are the wanted ones, in any order."""
    said = {found.lower() for found in shape.findall(answer)}
    return said == {each.lower() for each in wanted}


def is_echo(answer: str, item: Item) -> bool:
    """Return whether the answer repeats a long run of its prompt other than the requested text."""
    said = answer.split()
    if len(said) < ECHO_WORDS:
        return False
    asked = " ".join(" ".join(item.wanted).split())
    heard = " ".join(" ".join(texts(item)).split())
    for end in range(ECHO_WORDS, len(said) + 1):
        run = " ".join(said[end - ECHO_WORDS : end])
        if run in heard and run not in asked:
            return True
    return False


def grade_match(answer: str, item: Item, shape: re.Pattern[str]) -> Grade:
    """Grade by RULER's rule; right means all wanted texts and no other of their shape."""
    if not answer.strip() or is_echo(answer, item):
        return NOTHING
    whole = all(holds(answer, each) for each in item.wanted)
    return Grade(
        score=string_match_all(answer, item.wanted),
        right=whole and is_set(answer, item.wanted, shape),
    )


def json_in(answer: str) -> object | None:
    """Return the JSON value of a whole answer, fenced or not; None if it is not JSON."""
    fenced = _FENCED.match(answer)
    try:
        return _parse(fenced[1] if fenced else answer)
    except UNREADABLE:
        return None


def call_text(name: str, arguments: str) -> str:
    """Write a tool call as graders read it: a JSON object of name and arguments.

    Arguments that are no JSON, which a model may write, are one text.
    """
    try:
        said = _call_json(name, _parse(arguments))
    except UNREADABLE:
        said = _call_json(name, arguments)
    # half of a surrogate pair can be escaped, and not written
    return said.encode("utf-8", "replace").decode()


def _parse(text: str) -> object:
    """Parse JSON of a model; raise one of `UNREADABLE`, before that would take long."""
    if text.count("[") + text.count("{") > MOST_NESTED:
        raise ValueError(f"more than {MOST_NESTED:,} objects and lists")
    return json.loads(text)


def _call_json(name: str, arguments: object) -> str:
    """Write a tool call as a JSON object."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def grade_against_record(answer: str, recorded: str) -> Grade | None:
    """Grade an answer by the recorded one; None if that has nothing to compare.

    A tool call scores half for the tool, the rest for the share of equal arguments. Any
    other answer scores the share of the recorded identifiers that it contains.
    """
    wanted = _tool_call(recorded)
    if wanted is not None:
        said = _tool_call(answer)
        if said is None or said[0] != wanted[0]:
            return NOTHING
        share = _equal_share(said[1], wanted[1])
        return Grade(score=0.5 + 0.5 * share, right=share == 1)
    identifiers = set(filter(_is_identifier, _WORD.findall(recorded)))
    if not identifiers:
        return None
    share = sum(holds(answer, each) for each in identifiers) / len(identifiers)
    return Grade(score=share, right=share == 1)


def _equal_share(mine: dict[str, object], theirs: dict[str, object]) -> float:
    """Return the share of the arguments of two calls that are equal; 1 where there are none."""
    names = mine.keys() | theirs.keys()
    if not names:
        return 1.0
    both = mine.keys() & theirs.keys()
    return sum(mine[name] == theirs[name] for name in both) / len(names)


def _is_identifier(word: str) -> bool:
    """Tell whether a word is a path, a hash or a name with a number in it."""
    return "/" in word or "_" in word or any(map(str.isdigit, word))


def _tool_call(said: str) -> tuple[str, dict[str, object]] | None:
    """Return an answer's tool call, a JSON object or, as imports write it, name(arguments)."""
    found = json_in(said)
    _, written = calls_in(said)
    if written:
        found = {"name": written[0][0], "arguments": json_in(written[0][1])}
    match found:
        case {"name": str(name), "arguments": dict(arguments)}:
            return name, arguments
        case _:
            return None


def grade(check: Check, answer: str, *, tokens: int | None = None) -> Grade:
    """Grade by one check; a tool call is written as JSON of name and arguments.

    Without *tokens* a length counts words. The check is one of which `problem` has nothing to say.
    """
    is_right = _passes(check, answer, tokens)
    return Grade(score=float(is_right), right=is_right)


def grade_all(checks: Sequence[Check], answer: str, *, tokens: int | None = None) -> Grade:
    """Grade by several checks: the score is the share passed, right means all."""
    passed = [grade(check, answer, tokens=tokens).right for check in checks]
    return Grade(score=sum(passed) / len(passed), right=all(passed))


def _passes(check: Check, answer: str, tokens: int | None) -> bool:
    match check:
        case Has(text=text):
            return text in answer
        case Matches(pattern=pattern):
            return re.search(pattern, answer) is not None
        case Number(value=value, tolerance=tolerance):
            numbers = _NUMBER.findall(answer)
            if not numbers:
                return False
            last = float(numbers[-1].replace(",", ""))
            return abs(last - value) <= tolerance
        case JsonSchema(schema=text):
            found = json_in(answer)
            is_json = found is not None or answer.strip() == "null"
            return is_json and schema.accepts(json.loads(text), found)
        case ToolCall(name=name, arguments=arguments):
            return _calls(json_in(answer), name, json.loads(arguments))
        case Equals(text=text):
            return answer.strip() == text.strip()
        case Length(at_least=low, at_most=high):
            count = len(answer.split()) if tokens is None else tokens
            return low <= count and (high is None or count <= high)
        case _:
            assert_never(check)


def _calls(said: object, name: str, arguments: dict[str, object]) -> bool:
    if not isinstance(said, dict) or said.get("name") != name:
        return False
    passed = said.get("arguments")
    if not isinstance(passed, dict):
        return False
    return all(key in passed and passed[key] == value for key, value in arguments.items())
