"""Read a study from a file, with its paths as they are from here."""

from __future__ import annotations

import os
from pathlib import Path

from agentload.endpoints.read import is_arms_file
from agentload.errors import UsageError
from agentload.study.change import extended
from agentload.study.document import MOST_BYTES, SHOWN, fields_of, parse
from agentload.study.kinds import Study


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
