"""Find and read the traces that a verb was given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from agentload.builtin import HERE, find
from agentload.errors import TraceError, UsageError
from agentload.layout.traces import merged
from agentload.model.trace import Trace
from agentload.study.change import extended
from agentload.study.kinds import Replay, Search, Study
from agentload.study.parts import TraceRef
from agentload.tracefile.files import digest, read


def load_traces(names: Sequence[str], *, lenient: bool = False, within: Path = HERE) -> tuple[Trace, str]:
    """Return the traces as one, with a hash of what they hold; *within* takes the place of the working directory."""
    trace, refs = read_traces([TraceRef(path=name) for name in names], lenient=lenient, within=within)
    return trace, trace_hash(refs)


def read_traces(refs: Sequence[TraceRef], *, lenient: bool = False, within: Path = HERE) -> tuple[Trace, tuple[TraceRef, ...]]:
    """Return the traces of a study as one, with what each holds. Raises TraceError where that is not what the study says."""
    if any(ref.path == "-" for ref in refs):
        raise UsageError(
            "a trace that is played is read more than once, so it cannot be a pipe", hint="agentload trace generate rag -o rag.jsonl"
        )
    paths = [find("traces", ref.path, within=within) for ref in refs]
    found = tuple(TraceRef(path=ref.path, sha256=digest(path)) for ref, path in zip(refs, paths, strict=True))
    for ref, now in zip(refs, found, strict=True):
        if ref.sha256 is not None and ref.sha256 != now.sha256:
            raise TraceError(
                f"{ref.path}: not the trace that the study was written for (sha256 {now.sha256}, not {ref.sha256})",
                hint="take the trace that it names, or leave 'sha256' out of the study",
            )
    return merged([read(path, lenient=lenient) for path in paths]), found


def trace_hash(refs: Sequence[TraceRef]) -> str:
    """Return one hash of several traces; of one, its own."""
    digests = [ref.sha256 or "" for ref in refs]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def pinned(study: Study) -> Study:
    """Return a study that names what its traces hold, so that it is refused where they hold something else."""
    if not isinstance(study, Replay | Search):
        return study
    return extended(study, traces=read_traces(study.traces)[1])
