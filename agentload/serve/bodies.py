"""Parse the bodies of requests, with vLLM's fields, types and defaults.

Pydantic reads them, as in vLLM, so that a body of another form, or with contradictory fields,
is refused in the same words.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from agentload.serve.refusal import unreadable

Objects: TypeAlias = list[dict[str, Any]]
TokenIds: TypeAlias = list[Annotated[int, Field(ge=0)]]
_OTHER_TOOL: Final = (
    "The tool specified in `tool_choice` does not match any of the specified `tools`"
)
_CHOICES: Final = 'Only named tools, "none", "auto" or "required" are supported.'


class ContradictionError(ValueError):
    """Fields of a body contradict each other; *param* is the one to change."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class StreamOptions(BaseModel):
    """Fields of `stream_options`: what a stream carries besides its tokens."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Body(BaseModel):
    """Fields that both faces share."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    max_tokens: int | None = None
    min_tokens: int | None = 0
    thinking_token_budget: int | None = None
    ignore_eos: bool | None = False
    stop: str | list[str] | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for param, message in self.contradictions():
            raise ContradictionError(param, message)
        return self

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield each parameter that contradicts another one, with the message."""
        if self.prompt_logprobs is not None and self.stream:
            yield "prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`."
        options = self.stream_options
        if options is not None and options.model_fields_set and not self.stream:
            yield "stream_options", "Stream options can only be defined when `stream=True`."


class ChatBody(Body):
    """Fields of `/v1/chat/completions`."""

    messages: Objects
    tools: Objects | None = None
    tool_choice: Any = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield each parameter that contradicts another one, with the message."""
        yield from super().contradictions()
        if self.top_logprobs and not self.logprobs:
            yield "top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true."
        choice = self.tool_choice
        if choice in (None, "none"):
            return
        if not self.tools:
            yield "tool_choice", "When using `tool_choice`, `tools` must be set."
        elif isinstance(choice, dict):
            name = _function_name(choice)
            if name is None or name not in map(_function_name, self.tools):
                yield "tool_choice", _OTHER_TOOL
        elif choice not in ("auto", "required"):
            yield "tool_choice", f"Invalid value for `tool_choice`: {choice}! {_CHOICES}"

    def chosen_tool(self) -> str | None:
        """Return `none`, `auto`, `required`, or the name of a tool that must be called."""
        if "tool_choice" not in self.model_fields_set:
            return "auto" if self.tools else None
        choice: str | dict[str, Any] | None = self.tool_choice
        if isinstance(choice, dict):
            return _function_name(choice)
        return choice


class CompletionBody(Body):
    """Fields of `/v1/completions`."""

    prompt: TokenIds | list[TokenIds] | str | list[str] | None = None
    logprobs: int | None = None

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield each parameter that contradicts another one, with the message."""
        yield from super().contradictions()
        if not self.prompt:
            yield "prompt", "Either prompt or prompt_embeds must be provided and non-empty."


class TokenizeBody(BaseModel):
    """Fields of `/tokenize`: a prompt or messages."""

    messages: Objects | None = None
    tools: Objects | None = None
    prompt: str | None = None


def _function_name(tool: Mapping[str, Any]) -> str | None:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


Form = TypeVar("Form", bound=BaseModel)


def read(form: type[Form], body: bytes) -> Form:
    """Read a body; raise `RefusedError` in the words of vLLM's framework if it is malformed."""
    try:
        return form.model_validate_json(body)
    except ValidationError:
        # Read it again the way vLLM's framework does, for its error messages:
        # first the text with the standard library, then the values.
        return _read_as_framework(form, body)


def _read_as_framework(form: type[Form], body: bytes) -> Form:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        # Not JSON, not UTF-8, a number of thousands of digits, or lists nested without end.
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        cause = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        fault = {
            "type": "json_invalid",
            "loc": (at,),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": cause},
        }
        raise unreadable([fault]) from error
    try:
        return form.model_validate(fields, from_attributes=True)
    except ValidationError as error:
        raise unreadable(error.errors(include_url=False)) from error
