"""Read and edit watch.yaml.

```yaml
database: watch.duckdb
jobs:
  nightly-rag:
    traces: [rag]
    endpoints: prod=http://127.0.0.1:8000/v1
    schedule: {cron: "0 2 * * *", time_zone: Europe/Berlin, stagger_s: 300}
    budget: {calls: 400, minutes: 30}
    retention: {runs: 30}
```
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from agentload import documents
from agentload.builtin import find
from agentload.endpoints.read import arms_file, is_arms_file
from agentload.errors import AgentloadError
from agentload.model.record import Record
from agentload.watch.job import SHOWN, Job, job

DATABASE: Final = "watch.duckdb"
DEFAULT: Final = "watch.yaml"
KEYS: Final = frozenset({"database", "jobs"})


class Jobs(Record):
    """Hold what a jobs file says."""

    path: Path
    database: Path
    jobs: tuple[Job, ...]

    def named(self, name: str) -> Job:
        """Return the job of that name; raise `AgentloadError` that lists those there are."""
        found = next((each for each in self.jobs if each.name == name), None)
        if found is None:
            known = ", ".join(each.name for each in self.jobs)
            raise AgentloadError(
                f"{self.path}: no job '{name}'",
                hint=f"its jobs: {known}" if known else "agentload watch add --help",
            )
        return found


def read_jobs(path: Path) -> Jobs:
    """Read a jobs file; raise `AgentloadError` that names what is wrong."""
    if not path.is_file():
        raise AgentloadError(
            f"{path}: no such jobs file",
            hint="agentload watch add writes one; --file names another",
        )
    content = _content(path)
    entries = content.get("jobs") or {}
    if not isinstance(entries, dict):
        raise AgentloadError(f"{path}: jobs: expected names with their settings", hint=SHOWN)
    place = path.resolve()
    return Jobs(
        path=place,
        database=(place.parent / str(content.get("database", DATABASE))).resolve(),
        jobs=tuple(job(str(name), each, at=place) for name, each in entries.items()),
    )


def add(path: Path, name: str, entry: Mapping[str, Any]) -> Job:
    """Add a job to a file, which is made if it does not exist.

    Raises `AgentloadError` if the name is taken or a file that the job names is missing.
    """
    added = new_job(path, name, entry)
    content = _content_or_new(path)
    entries = content.get("jobs") or {}
    whole = {**content, "jobs": {**entries, name: dict(entry)}}
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    block = "".join(f"  {line}\n" for line in _yaml({name: dict(entry)}).splitlines())
    # A file that can be appended to keeps its comments; any other layout is written again.
    text = before + block
    replace_file(path, text if _reads_as(text, whole) else _yaml(whole))
    return added


def _yaml(content: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def new_job(path: Path, name: str, entry: Mapping[str, Any]) -> Job:
    """Return the job that `add` would add, and raise what it would raise; nothing is written."""
    if name in (_content_or_new(path).get("jobs") or {}):
        raise AgentloadError(
            f"{path}: there is a job '{name}'",
            hint=f"edit the file, or: agentload watch remove {name}",
        )
    made = job(name, dict(entry), at=path.resolve())
    _check_files(made, at=path)  # a missing file shows now, not in the night
    return made


def _content_or_new(path: Path) -> dict[str, Any]:
    if path.is_file():
        return _content(path)
    return {"database": DATABASE}


def _check_files(added: Job, *, at: Path) -> None:
    folder = at.resolve().parent
    for trace in added.traces:
        said = os.path.relpath(trace, folder) if Path(trace).is_absolute() else trace
        try:
            find("traces", said, within=folder)
        except AgentloadError as error:
            raise AgentloadError(error.message, hint=_meant(said, at) or error.hint) from error
    if is_arms_file(added.endpoints) and not arms_file(added.endpoints).is_file():
        meant = _meant(os.path.relpath(added.endpoints, folder), at)
        raise AgentloadError(
            f"no arms file '{added.endpoints}'", hint=meant or "agentload endpoints init writes one"
        )


def _meant(text: str, at: Path) -> str | None:
    """Say how the jobs file would name a file that lies in the current folder."""
    if Path(text).is_absolute() or not Path(text).is_file():
        return None
    return f"paths are relative to {at}: {os.path.relpath(text, at.parent)}"


def remove(path: Path, name: str) -> None:
    """Remove a job from a file; its history stays in the database."""
    read_jobs(path).named(name)
    content = _content(path)
    content["jobs"] = {other: entry for other, entry in content["jobs"].items() if other != name}
    replace_file(path, _yaml(content))


def _reads_as(text: str, content: Mapping[str, Any]) -> bool:
    try:
        return bool(documents.parse(text, at="") == content)
    except AgentloadError:
        return False


def _content(path: Path) -> dict[str, Any]:
    content = documents.read(path, hint=SHOWN)
    content = {} if content is None else content
    if not isinstance(content, dict) or set(content) - KEYS:
        raise AgentloadError(f"{path}: expected the keys {' and '.join(sorted(KEYS))}", hint=SHOWN)
    return content


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a reader sees either the old one or the new one.

    Cron or a collector may read it at this moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)  # a link that another user laid out for us
    with beside.open("x", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def environment_file(jobs_file: Path) -> Path:
    """Return the file for variables of a jobs file: `watch.env` next to `watch.yaml`.

    It may hold those of endpoints and webhooks.
    """
    return jobs_file.with_suffix(".env")


def complete_environment(jobs_file: Path) -> None:
    """Set the variables of the environment file which the caller has not set."""
    for name, value in read_environment(environment_file(jobs_file)).items():
        os.environ.setdefault(name, value)


def read_environment(path: Path) -> dict[str, str]:
    """Read NAME=value lines; none when there is no such file.

    Raises `AgentloadError` for a file that others may read.
    """
    if not path.is_file():
        return {}
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AgentloadError(
            f"{path}: others may read it, and it holds secrets", hint=f"chmod 600 {path}"
        )
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:  # the line itself may be a secret
            raise AgentloadError(
                f"{path}:{number}: expected NAME=value",
                hint="a line a variable, such as SLACK_URL=https://…",
            )
        name, value = match.groups()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[name] = value[1:-1] if is_quoted else value
    return found
