"""Several questions behind one context: what each is about stands in a part of it, so that the whole is read once and asked often."""

from collections.abc import Sequence
from dataclasses import replace

from agentload.errors import UsageError
from agentload.tasks import Item, prompt, texts


def together(items: Sequence[Item], *, task: str) -> tuple[Item, ...]:
    """Return the items as questions behind all of their contexts, one after the other. Raises UsageError for what is no single message."""
    if any(len(item.messages) > 1 or item.tools or "\n" not in texts(item)[-1] for item in items):
        raise UsageError(f"task '{task}' is a conversation, or calls tools: its questions share no context", hint="--per-context 1")
    parts = [texts(item)[0].rpartition("\n") for item in items]
    context = "\n\n".join(part for part, _, _ in parts)
    return tuple(replace(item, messages=prompt(f"{context}\n{question}")) for item, (_, _, question) in zip(items, parts, strict=True))
