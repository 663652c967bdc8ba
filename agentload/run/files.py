"""Read a study and the traces that it names, by paths that hold from the current folder."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from agentload import documents
from agentload.builtin import HERE, Kind, find
from agentload.endpoints.read import is_arms_file
from agentload.errors import AgentloadError, TraceError, UsageError
from agentload.layout.traces import merge, shorten, with_texts
from agentload.model.trace import Trace
from agentload.study.change import extend
from agentload.study.document import SHOWN, fields_of, parse
from agentload.study.kinds import Decide, Replay, Search, Study
from agentload.study.parts import TraceRef
from agentload.tracefile.files import digest, read


def read_traces(
    refs: Sequence[TraceRef],
    *,
    lenient: bool = False,
    max_context_tokens: int | None = None,
    compares: bool | None = None,
) -> tuple[Trace, tuple[TraceRef, ...]]:
    """Return the traces of a study merged into one, and a reference with the hash of each.

    Sessions are shortened to *max_context_tokens*. Unless *compares* is None, turns have the words
    that the import kept; where it is true, also the recorded answers. Raises TraceError where a
    trace is not the one that the study names or cannot be played, or no words were kept.
    """
    if any(ref.path == "-" for ref in refs):
        raise UsageError(
            "a trace that is played is read more than once, so it cannot be a pipe",
            hint="agentload trace generate rag -o rag.jsonl",
        )
    paths = [find("traces", ref.path) for ref in refs]
    found = tuple(
        TraceRef(path=ref.path, sha256=digest(path)) for ref, path in zip(refs, paths, strict=True)
    )
    for ref, now in zip(refs, found, strict=True):
        if ref.sha256 is not None and ref.sha256 != now.sha256:
            raise TraceError(
                f"{ref.path}: not the trace that the study was written for (sha256 "
                f"{now.sha256}, not {ref.sha256})",
                hint="take the trace that it names, or leave 'sha256' out of the study",
            )
    traces = [
        _playable(path, str(ref.sha256), lenient=lenient)
        for ref, path in zip(found, paths, strict=True)
    ]
    if compares is not None:
        # late: most traces have no words of their own
        from agentload.importers.parts.intake import read_texts, texts_path

        traces = [
            with_texts(trace, read_texts(texts_path(path)), compares=compares)
            for trace, path in zip(traces, paths, strict=True)
        ]
    made = merge(traces)
    return made if max_context_tokens is None else replace(
        made, sessions=shorten(made, max_context_tokens)
    ), found


@lru_cache(maxsize=4)  # what is decoded of a trace of 12 MiB takes 70 MB
def _playable(path: Path, sha256: str, *, lenient: bool) -> Trace:  # noqa: ARG001 # what it holds
    """Return a trace that has no problem, which is looked for once in each content of a file."""
    trace = read(path, lenient=lenient)
    if not lenient:  # lines that are left out may be what others follow
        from agentload.tracefile.check import refuse  # late: help needs no numpy

        refuse(trace, name=str(path))
    return trace


def trace_hash(refs: Sequence[TraceRef]) -> str:
    """Return one hash of several traces; a single trace keeps its own hash."""
    digests = [ref.sha256 or "" for ref in refs]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def pin(study: Study) -> Study:
    """Return a study with the hashes of its traces, so that other contents are refused."""
    if not isinstance(study, Replay | Search | Decide):
        return study
    return extend(study, traces=read_traces(study.traces)[1])


def read_study(path: Path) -> Study:
    """Read a study. Raises UsageError that names the file and what is wrong in it."""
    text = documents.text(path, raises=UsageError, hint=SHOWN)
    study = parse(text, at=str(path))
    if path.parent in (HERE, Path.cwd()):
        return study
    return resolve_paths(study, path.parent)


def resolve_paths(study: Study, folder: Path) -> Study:
    """Return a study whose paths, relative to *folder*, are made to hold from here.

    Names of shipped files stay names.
    """
    moved: dict[str, object] = {}
    for flag in fields_of(study):
        name = flag.path[-1]
        value = flag.value(study)
        if name == "traces":
            moved[name] = tuple(
                TraceRef(path=_led("traces", each.path, folder), sha256=each.sha256)
                for each in value
            )
        elif name == "profile":
            moved[name] = _led("profiles", value, folder)
        elif flag.said.place and value is not None and (name != "endpoints" or is_arms_file(value)):
            moved[name] = os.path.normpath(folder / value)
    return extend(study, **moved)


def _led(kind: Kind, name: str, folder: Path) -> str:
    try:
        found = find(kind, name, within=folder)
    except AgentloadError:  # the reader of the path reports that
        return os.path.normpath(folder / name)
    # A file in this folder may hide a shipped one.
    if not found.is_relative_to(folder) and found.samefile(find(kind, name)):
        return name
    return os.path.normpath(found)
