"""Read an answer that was not streamed."""

from agentload.dispatch.fault import body_fault, word
from agentload.dispatch.shapes import UNREADABLE, Delta, Function, Usage, decode, uncrowded
from agentload.dispatch.sse import Parsed, ToolCall


def document(body: bytes | bytearray) -> Parsed:
    """Read a whole answer. It has no stamps: when its tokens were made is not known."""
    try:
        found = decode(uncrowded(body))
    except UNREADABLE as error:
        return Parsed(unreadable=f"the answer is not of the expected form: {error}")
    if found.is_fault:
        return Parsed(fault=body_fault(body))
    if not found.choices:
        return Parsed(unreadable="the answer has no choices")
    choice = found.choices[0]
    message = choice.message or Delta(content=choice.text)
    usage = found.usage or Usage()
    functions = [piece.function or Function() for piece in message.tool_calls or ()]
    return Parsed(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        thinking_tokens=usage.thinking_tokens,
        finish_reason=word(choice.finish_reason) if choice.finish_reason else None,
        unreadable=usage.contradiction,
        text=message.content or message.refusal or "",
        thinking=message.reasoning or message.reasoning_content or "",
        tool_calls=tuple(ToolCall(name=function.name or "", arguments=function.arguments or "") for function in functions),
    )
