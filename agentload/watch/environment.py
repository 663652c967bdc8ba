"""Read the file of secrets beside a jobs file: schedulers start with hardly any environment."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from agentload.errors import AgentloadError

_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def environment_file(jobs_file: Path) -> Path:
    """Return where the variables of a jobs file's endpoints and webhooks may lie: `watch.env` beside `watch.yaml`."""
    return jobs_file.with_suffix(".env")


def complete_environment(jobs_file: Path) -> None:
    """Set the variables of that file which the caller has not set."""
    for name, value in read_environment(environment_file(jobs_file)).items():
        os.environ.setdefault(name, value)


def read_environment(path: Path) -> dict[str, str]:
    """Read NAME=value lines; none when there is no such file. Raises `AgentloadError` for a file that others may read."""
    if not path.is_file():
        return {}
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AgentloadError(f"{path}: others may read it, and it holds secrets", hint=f"chmod 600 {path}")
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:  # the line itself may be a secret
            raise AgentloadError(f"{path}:{number}: expected NAME=value", hint="a line a variable, such as SLACK_URL=https://…")
        name, value = match.groups()
        found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
    return found
