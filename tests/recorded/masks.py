"""Take out of a recording what no two runs have in common."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import duckdb

from agentload import __version__
from tests.recorded.server import Server

_GENERAL: Final = (
    (r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN"),
    (r"\bsim-[0-9a-f]{8,}\b", "SIMULATED"),
    (r"\b127\.0\.0\.1:\d{4,5}\b", "127.0.0.1:PORT"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "DATE"),
    (r"\b\d{4}-\d\d-\d\d\b", "DAY"),
    (r"\bpid[ =]\d+", "pid PID"),
    (r"\bprocess \[\d+\]", "process [PID]"),
    (r"\b\d\d-\d\d \d\d:\d\d:\d\d\b", "DATE"),
    (r"\.[0-9a-f]{8}\.journal\b", ".HOST.journal"),
    (r"(simulated in|after|took) [\d.,]+ s\b", r"\1 N s"),
    (rf"agentload(/| |: ?){re.escape(__version__)}", r"agentload\1VERSION"),
    (r'("(?:[a-z]+_ns|version|host|boot_id|process_start_s)": ?)("[^"]*"|[\d.e+]+)', r"\1MASKED"),
    (r"(leg\d+)-\d+\.raw", r"\1-PID.raw"),
    (r"Next: agentload doctor\nThen:", "Next:"),  # on a machine that was busy
)
_PASSING: Final = re.compile(
    r"timings are invalid: |^ void: |^ *[\dN]+ s \S+ |^[\d,N]+/[\d,N]+ answers, "
)
_VERSIONS: Final = re.compile(r"\b([A-Za-z-]+)(?:/Python |/)\d[\w.]*")
_RANDOM: Final = re.compile("host$|x-request-id$|x-stainless", re.IGNORECASE)


def masked(text: str, values: Mapping[str, str]) -> str:
    """Put names in the place of runs, ports, folders, dates
    and the like, and six digits in the place of more.
    """
    for name in ("folder", "python", "bin", "root"):
        text = text.replace(values[name], name.upper())
    for name, value in values.items():
        if name.startswith("port"):
            text = re.sub(rf"\b{value}\b", "PORT", text)
    for pattern, put in _GENERAL:
        text = re.sub(pattern, put, text)
    if "FOLDER" in text:  # whose length is the width of a column
        text = re.sub(r"(?<=\S) {3,}(?=\S)", "  ", text)
    return re.sub(r"-?\d+\.\d{7,}(e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def figures(text: str) -> str:
    """Put N in the place of every number, one space in the place
    of several, and its keys in the place of a JSON document.
    """
    with contextlib.suppress(ValueError):
        return "\n".join(dict.fromkeys(_keys(json.loads(text), "", 2)))
    text = re.sub(r"(?<![\w.-])[-+−]?\d+([.,:]\d+)*(e-?\d+)?%?", "N", text)
    return re.sub(r" {2,}", " ", text)


def _keys(value: object, path: str, levels: int) -> Iterator[str]:
    """Yield the paths of all keys of the first levels; what lies deeper may be there or not."""
    match value:
        case list() if value:
            for each in value:
                yield from _keys(each, f"{path}[]", levels)
        case dict() if value and levels:
            for key, each in value.items():
                yield from _keys(each, f"{path}.{key}", levels - 1)
        case _:
            yield path


def is_passing(line: str) -> bool:
    """Tell whether a line says how busy this machine was."""
    return _PASSING.search(line) is not None


def name(path: Path) -> str:
    """Return the name of a file without what is drawn;
    which charts there are depends on what was seen.
    """
    name = str(path.with_name("*") if path.parent.name == "charts" else path)
    for pattern, put in _GENERAL:
        name = re.sub(pattern, put, name)
    return name


def runs(database: Path) -> list[str]:
    """Return the runs of a database in the order in which they were stored."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return [
            name
            for (name,) in connection.execute("SELECT run_id FROM runs ORDER BY rowid").fetchall()
        ]


def requests(server: Server, values: Mapping[str, str]) -> Iterator[str]:
    """Yield what a server was asked since the last time, sorted:
    headers and questions without a body once, however often they came.
    """
    with server.lock:
        asked, server.requests = server.requests, []
    heads: set[str] = set()
    bodies: Counter[str] = Counter()
    for each in asked:
        headers = {
            name: "MASKED" if _RANDOM.match(name) else _VERSIONS.sub(r"\1/VERSION", value)
            for name, value in each["headers"].items()
        }
        length = headers.pop("Content-Length", None)
        heads.add(f"{each['request']} {json.dumps(headers)}")
        if each["body"]:
            bodies[f"{each['request']} {length} {json.dumps(each['body'])}"] += 1
    counted = [line for line in bodies.elements() if line.startswith("POST /tokenize")]
    lines = [
        *sorted(heads),
        *(f"{count} x {line}" for line, count in sorted(bodies.items()) if line not in counted),
    ]
    if counted:
        lines.append(f"{len(counted)} x POST /tokenize, all of them {digest(sorted(counted))}")
    yield from (masked(line, values) for line in lines)


def digest(lines: Iterable[str]) -> str:
    """Return a short digest of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
