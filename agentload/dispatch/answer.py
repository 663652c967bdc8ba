"""State what a call asked for, and what its answer said.

These structs are apart from those who use them: mypyc compiles those modules, and drops the
keywords of a struct, such as `frozen`.
"""

from agentload.dispatch.fault import Fault
from agentload.model.commands import TokenRule
from agentload.model.record import Record


class CallTerms(Record, gc=False):
    """Describe what a call asked for, as far as its answer is judged by it."""

    tokens: int | None = None
    """The most tokens that the answer may have (`max_tokens`)."""
    is_forced: bool = False
    """Whether the answer must have exactly `tokens` tokens (`ignore_eos` was set)."""
    is_streamed: bool = True
    ends_with_mark: bool = True
    """Whether this server ends its streams with `[DONE]`."""
    wants_reply: bool = False


class ReplyToolCall(Record):
    """A call of a tool, joined from its pieces; the arguments are JSON text."""

    name: str
    arguments: str


class Parsed(Record, gc=False):
    """What an answer said.

    `stamps_ns` and `tokens` have one entry for each chunk that carried tokens.
    """

    stamps_ns: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    token_rule: TokenRule | None = None
    first_answer_ns: int | None = None
    """Stamp of the first chunk that is not thinking."""
    coalesced_reads: int = 0
    """Chunks that came in the same read as the chunk before them, whose stamp they share."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    finish_reason: str | None = None
    has_end_mark: bool = False
    """Whether the stream said `[DONE]`."""
    fault: Fault | None = None
    """An error inside a 200 answer, or the error that an error answer's body holds."""
    unreadable: str | None = None
    """What could not be read or contradicts itself; None if nothing."""
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ReplyToolCall, ...] = ()

    @property
    def first_ns(self) -> int | None:
        """When the first token of any kind arrived."""
        return self.stamps_ns[0] if self.stamps_ns else None

    @property
    def last_ns(self) -> int | None:
        """When the last token arrived."""
        if not self.stamps_ns:
            return None
        return self.stamps_ns[-1]
