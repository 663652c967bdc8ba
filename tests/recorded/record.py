"""Record what the command line does, replay it, and show every difference.

Recordings are files in `recordings/`: help texts, lists (`surface.py`), and the
cases of `cases.yaml`: command lines in a folder of their own with the output, exit
code, new files, rows and requests that each brings. A difference that is meant is
accepted by writing the recording anew: `git diff` shows it, and the commit says why.

    python -m tests.recorded.record                                 # replay
    everything, and print what differs python -m tests.recorded.record --only
    replay-live              # names, or how they begin python -m tests.recorded.record
    --write --only help verbs       # write these anew; without --only all
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import yaml

from tests.recorded import masks, surface
from tests.recorded.rows import rows
from tests.recorded.server import Server

HERE: Final = Path(__file__).parent
RECORDINGS: Final = HERE / "recordings"
ROOT: Final = HERE.parents[1]
PROCESSES: Final = 2
PATIENCE_S: Final = 600.0
"""For one command line, on a machine that has other things to do."""


def names() -> tuple[str, ...]:
    """List all recordings that there should be."""
    return ("help", *surface.LISTS, *cases())


def cases() -> dict[str, Any]:
    """Return the cases: by name a list of command lines,
    or a mapping with `commands` and what they need.
    """
    found: dict[str, Any] = yaml.safe_load((HERE / "cases.yaml").read_text(encoding="utf-8"))
    return {
        name: case if isinstance(case, dict) else {"commands": case} for name, case in found.items()
    }


def text_of(name: str) -> str:
    """Return what a recording would hold now."""
    print(f"{name} …", file=sys.stderr, flush=True)
    if name == "help":
        return _helps()
    if name in surface.LISTS:
        flow = None if name == "verbs" else False
        return yaml.safe_dump(
            surface.LISTS[name](), sort_keys=False, width=1000, default_flow_style=flow
        )
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        return Case(cases()[name], Path(folder)).text()


def _helps() -> str:
    lines: list[tuple[list[str], dict[str, str]]] = [
        ([*path.split(), "--help"], {}) for path, _ in surface.commands()
    ]
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        texts = _together(lines, cwd=Path(folder))
    return "\n".join(
        f"$ agentload {' '.join(words)}\n{done.stdout}"
        for (words, _), done in zip(lines, texts, strict=True)
    )


def _together(
    lines: Sequence[tuple[Sequence[str], Mapping[str, str]]], *, cwd: Path
) -> list[subprocess.CompletedProcess[str]]:
    """Run command lines that start nothing in one
    process: two hundred of them would take minutes.
    """
    done = _run([sys.executable, "-m", "tests.recorded.together"], cwd=cwd, given=json.dumps(lines))
    assert done.returncode == 0, done.stderr
    return [
        subprocess.CompletedProcess(words, *each)
        for (words, _), each in zip(lines, json.loads(done.stdout), strict=True)
    ]


def _run(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of this machine in its environment."""
    fixed = {
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "HOME": str(cwd),
        "PYTHONPATH": str(ROOT),
    }
    fixed["AGENTLOAD_CLIENT_CHECK"] = "0"  # how busy this machine is changes from day to day
    return subprocess.run(
        words,
        cwd=cwd,
        env={**fixed, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})},
        capture_output=True,
        text=True,
        input=given,
        timeout=PATIENCE_S,
        check=False,
    )


class Case:
    """Command lines that are typed one after the other in one folder."""

    def __init__(self, case: Mapping[str, Any], folder: Path) -> None:
        """Put the files of all cases into *folder*, and start the servers that this one names."""
        self._case = case
        self._folder = folder
        self._rows: dict[tuple[Path, str], list[str]] = {}
        ports = [_free_port() for _ in range(2)]
        self._servers = {
            name: Server(kv=kv, port=port)
            for port, (name, kv) in zip(ports, case.get("servers", {}).items(), strict=False)
        }
        self._values = {
            "folder": str(folder),
            "python": sys.executable,
            "bin": str(Path(sys.executable).parent),
            "root": str(ROOT),
        }
        self._values |= {f"port{number}": str(port) for number, port in enumerate(ports, 1)}
        self._values |= {
            f"url{number}": f"http://127.0.0.1:{port}/v1" for number, port in enumerate(ports, 1)
        }
        for file in sorted((HERE / "files").rglob("*")):
            if file.is_file():
                target = folder / file.relative_to(HERE / "files")
                target.parent.mkdir(parents=True, exist_ok=True)
                is_template = file.suffix == ".yaml"
                target.write_text(
                    self._filled(file.read_text(encoding="utf-8"))
                ) if is_template else shutil.copy(file, target)

    def text(self) -> str:
        """Run the commands and return all that they did."""
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, daemon=True).start()
        commands = [
            each if isinstance(each, dict) else {"run": each} for each in self._case["commands"]
        ]
        try:
            if not self._case.get("together"):
                return "\n".join(self._did(command) for command in commands)
            lines = [
                (shlex.split(self._filled(each["run"])), self._contents(each)) for each in commands
            ]
            done = _together(lines, cwd=self._folder)
            return "\n".join(
                self._shown(command, each) for command, each in zip(commands, done, strict=True)
            )
        finally:
            for server in self._servers.values():
                server.shutdown()
                server.server_close()

    def _did(self, command: Mapping[str, Any]) -> str:
        for name, content in self._contents(command).items():
            (self._folder / name).write_text(content, encoding="utf-8")
        typed, said = self._filled(command["run"]), {**self._case, **command}
        if typed.startswith("cat "):
            shown = (self._folder / typed.removeprefix("cat ")).read_text(encoding="utf-8")
            return f"$ {command['run']}\n{self._masked(shown, said)}"
        before = {path: path.stat().st_mtime_ns for path in self._files()}
        env = {name: self._filled(value) for name, value in said.get("env", {}).items()}
        done = _run(
            [sys.executable, "-m", "agentload", *shlex.split(typed)], cwd=self._folder, env=env
        )
        touched = [path for path in self._files() if before.get(path) != path.stat().st_mtime_ns]
        made = sorted(
            {masks.name(path.relative_to(self._folder)) for path in touched if path not in before}
        )
        parts = [self._shown(command, done).rstrip("\n"), *(f"made | {each}" for each in made)]
        for database in (
            path for path in touched if path.suffix == ".duckdb" and said.get("rows", True)
        ):
            for key, lines in rows(database, is_timed=bool(said.get("measured"))).items():
                known = self._rows.get((database, key), ())
                parts += [
                    f"rows | {self._masked(line, said)}" for line in lines if line not in known
                ]
                self._rows[database, key] = lines
        for name, server in self._servers.items():
            parts += [f"{name} | {line}" for line in masks.requests(server, self._values)]
        return "\n".join(parts) + "\n"

    def _shown(self, command: Mapping[str, Any], done: subprocess.CompletedProcess[str]) -> str:
        said = {**self._case, **command}
        parts = [f"$ agentload {command['run']}", f"exit {said.get('exit', done.returncode)}"]
        for kind, text in (("out", done.stdout), ("err", done.stderr)):
            shown = self._masked(text, said)
            lines = (masks.figures(shown) if said.get("measured") is True else shown).splitlines()
            parts += [
                f"{kind} | {line}"
                for line in lines
                if said.get(kind, True) and not masks.is_passing(line)
            ]
        return "\n".join(parts) + "\n"

    def _contents(self, command: Mapping[str, Any]) -> dict[str, str]:
        return {name: self._filled(content) for name, content in command.get("files", {}).items()}

    def _masked(self, text: str, said: Mapping[str, Any]) -> str:
        for pattern, put in said.get("mask", ()):
            text = re.sub(pattern, put, text, flags=re.MULTILINE)
        return masks.masked(text, self._values)

    def _files(self) -> list[Path]:
        return [
            path
            for path in sorted(self._folder.rglob("*"))
            if path.is_file() and ".cache" not in path.parts
        ]

    def _filled(self, text: str) -> str:
        """Put in values: `{folder}`, `{port1}`, `{url1}`,
        `{run1}` (the first run of agentload.duckdb) and so on.
        """
        database = self._folder / "agentload.duckdb"
        if re.search(r"\{run\d\}", text) and database.exists():
            for number, run in enumerate(masks.runs(database), 1):
                text = text.replace(f"{{run{number}}}", run)
        for name, value in self._values.items():
            text = text.replace("{" + name + "}", value)
        return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def recording(name: str) -> Path:
    """Return where a recording is kept."""
    return RECORDINGS / f"{name}.txt"


def difference(name: str, now: str) -> str:
    """Return how what happens now differs from its recording; empty where it does not."""
    path = recording(name)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), f"{name}, recorded", f"{name}, now", lineterm=""
    )
    return "\n".join(lines)


def main() -> int:
    """Do what the module's text says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="recordings, or how their names begin"
    )
    parser.add_argument("--write", action="store_true", help="write the recordings anew")
    options = parser.parse_args()
    chosen = [name for name in names() if name.startswith(tuple(options.only))]

    def differs(name: str) -> bool:
        now = text_of(name)
        found = difference(name, now)
        if options.write:
            recording(name).write_text(now, encoding="utf-8")
        elif found:
            print(found, end="\n\n")
        return bool(found)

    with ThreadPoolExecutor(PROCESSES) as pool:
        differing = sum(pool.map(differs, chosen))
    print(f"{len(chosen)} recordings, {differing} differ", file=sys.stderr)
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
