"""Read what a study names: the study itself and its traces, by paths as they are from here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from agentload.builtin import HERE, find
from agentload.endpoints.read import is_arms_file
from agentload.errors import TraceError, UsageError
from agentload.layout.traces import merged
from agentload.model.trace import Trace
from agentload.study.change import extended
from agentload.study.document import MOST_BYTES, SHOWN, fields_of, parse
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


def read_study(path: Path) -> Study:
    """Read a study. Raises UsageError that names the file and what is wrong in it."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=SHOWN) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text", hint=SHOWN) from error
    return located(parse(text, at=str(path)), path.parent)


def located(study: Study, folder: Path) -> Study:
    """Return a study whose paths, which are relative to *folder*, lead there from here; names of what ships stay names."""
    if folder in (Path(), Path.cwd()):
        return study
    moved = {}
    for path, flag in fields_of(study):
        value = flag.value(study)
        if flag.said.place and isinstance(value, str) and (path[-1] != "endpoints" or is_arms_file(value)):
            is_there = (folder / value).exists() or path[-1] == "logs"
            moved[path[-1]] = os.path.relpath(folder / value) if is_there and not Path(value).is_absolute() else value
    return extended(study, **moved) if moved else study
