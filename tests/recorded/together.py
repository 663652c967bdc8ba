"""Run command lines in one process, for those that end before
anything is started: JSON with their words in, codes and outputs out.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path

from agentload.cli.main import main


def done(words: list[str], files: dict[str, str]) -> tuple[int, str, str]:
    """Return the exit code and both outputs of one command line; *files* are written first."""
    for name, content in files.items():
        Path(name).write_text(content, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["agentload", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except Exception:  # noqa: BLE001  # whatever a process would have died of
            traceback.print_exc(limit=0)
            code = 1
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    json.dump([done(words, files) for words, files in json.load(sys.stdin)], sys.stdout)
