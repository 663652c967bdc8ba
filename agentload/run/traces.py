"""Find and read the traces that a verb was given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from agentload.builtin import HERE, find
from agentload.errors import UsageError
from agentload.layout.traces import merged
from agentload.model.trace import Trace
from agentload.tracefile.reader import digest, read


def load_traces(names: Sequence[str], *, lenient: bool = False, within: Path = HERE) -> tuple[Trace, str]:
    """Return the traces as one, with a hash of what they hold; *within* takes the place of the working directory."""
    if "-" in names:
        raise UsageError(
            "a trace that is played is read more than once, so it cannot be a pipe", hint="agentload trace generate rag -o rag.jsonl"
        )
    paths: list[Path] = [find("traces", name, within=within) for name in names]
    digests = [digest(path) for path in paths]
    together = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return merged([read(path, lenient=lenient) for path in paths]), together
