"""Count with a local `tokenizer.json` and the chat template next to it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.prompts.calibrate import Message, calibrate
from agentload.prompts.tokenizer import MeasuredTokens

_TEMPLATE: Final = "chat_template.jinja"
_CONFIG: Final = "tokenizer_config.json"


class _Texts(Record, kw_only=False):
    """Count texts; unlike a closure it can be sent to a worker process."""

    tokenizer: Any

    def __call__(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def from_file(path: Path) -> MeasuredTokens:
    """Measure a `tokenizer.json` with the chat template next to it.

    Needs the extra `tokenizers`. Raises UsageError if a file cannot be used.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "a tokenizer file needs the package 'tokenizers'",
            hint="pip install 'agentload[tokenizers]'",
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(
            f"{path}: not a tokenizer: {error}", hint="give the tokenizer.json of the served model"
        ) from error
    if (path.parent / _CONFIG).is_file():
        config = json.loads((path.parent / _CONFIG).read_text())
    else:
        config = {}
    render = _environment().from_string(_template(path.parent, config)).render
    specials = {
        name: _special(config.get(name))
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }

    count_text = _Texts(tokenizer)

    def count(messages: Sequence[Message], tools: Sequence[Message] | None) -> int | None:
        try:
            text = render(
                messages=[_called(message) for message in messages],
                tools=tools,
                add_generation_prompt=True,
                **specials,
            )
        except TemplateError:  # `raise_exception`: the template refuses such messages
            return None
        return count_text(text)

    return calibrate(count, count_text=count_text)


def _template(folder: Path, config: dict[str, Any]) -> str:
    if (folder / _TEMPLATE).is_file():
        return (folder / _TEMPLATE).read_text()
    match config.get("chat_template"):
        case str(template):
            return template
        case [*named]:
            return str(next(each["template"] for each in named if each["name"] == "default"))
        case _:
            hint = f"put {_TEMPLATE} or {_CONFIG} of the served model there"
            raise UsageError(f"{folder}: no chat template next to the tokenizer", hint=hint)


def _environment() -> ImmutableSandboxedEnvironment:
    # Templates may rely on these names and on unescaped JSON, as in `transformers`.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = datetime.now(UTC).strftime
    return environment


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _called(message: Message) -> dict[str, Any]:
    """Decode the arguments of tool calls, as servers do before they render."""
    decoded: dict[str, Any] = json.loads(json.dumps(message))
    for call in decoded.get("tool_calls") or ():
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return decoded


def _special(token: object) -> str:
    text = token["content"] if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
