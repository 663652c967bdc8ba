"""Write the script of an answer."""

from __future__ import annotations

from agentload.prompts import words
from agentload.serve.content import Content
from agentload.serve.script import Script, plain
from agentload.serve.wanted import Wanted


def script(asked: Wanted, prompt: Content, *, seed: int, limit: int) -> Script:
    """Return what the emulated model says."""
    count = limit if asked.ignore_eos else min(limit, 64)
    found = words.text(seed, str(prompt.runs[-1:]), count).split()
    return plain((found[0], *(" " + word for word in found[1:])), finish="length" if count == limit else "stop")
