import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import typer

from agentload import __version__
from agentload.cli import main as cli
from agentload.errors import AgentloadError, GateError, InterruptError, TraceError, UsageError

AGENTLOAD = (sys.executable, "-m", "agentload")


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentload", *arguments])
    return cli.main()


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "run", run)


def test_no_arguments_print_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, "--help") == 0
    helped = capsys.readouterr().out
    assert invoke(monkeypatch) == 0
    assert capsys.readouterr().out == helped


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (("help",), ()),
        (("help", "runs", "list"), ("runs", "list")),
        (("doctor", "-h"), ("doctor",)),
    ],
)
def test_help_is_asked_for_in_three_ways(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    short: tuple[str, ...],
    long: tuple[str, ...],
) -> None:
    assert invoke(monkeypatch, *short) == 0
    helped = capsys.readouterr().out
    assert invoke(monkeypatch, *long, "--help") == 0
    assert capsys.readouterr().out == helped


@pytest.mark.parametrize(
    ("shell", "typed", "completed"),
    [
        ("bash", "agentload runs sh", "show"),
        ("bash", "agentload replay --wait-c", "--wait-cap"),
        ("fish", "agentload docto", "doctor\t"),
    ],
)
def test_a_shell_completes_verbs_and_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shell: str,
    typed: str,
    completed: str,
) -> None:
    words = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_AGENTLOAD_COMPLETE": f"complete_{shell}",
    }
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        invoke(monkeypatch)
    assert capsys.readouterr().out.startswith(completed)


@pytest.mark.parametrize(
    ("wish", "said"),
    [({}, "\x1b[31merror:\x1b[0m"), ({"NO_COLOR": "1"}, "error:"), ({"TERM": "dumb"}, "error:")],
)
def test_errors_have_a_colour_on_a_terminal_unless_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wish: dict[str, str],
    said: str,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | wish).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert invoke(monkeypatch, "doktor") == 2
    assert capsys.readouterr().err.startswith(f"{said} no verb")


def test_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, "--version") == 0
    assert capsys.readouterr() == (f"agentload {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("doktor",), "error: no verb 'doktor'\nhint: did you mean `agentload doctor`?\n"),
        (("xyzzy",), "error: no verb 'xyzzy'\nhint: agentload --help\n"),
        (("doctor", "--jsn"), "error: no option --jsn\nhint: --json\n"),
        (
            ("replay",),
            (
                "error: Missing argument 'traces'.\nhint: agentload replay demo-rag "
                "--endpoints emulated:llama-3.1-8b-h100 --db demo.duckdb\n"
            ),
        ),
        (
            ("doctor", "now"),
            "error: Got unexpected extra argument(s) (now)\nhint: agentload doctor --help\n",
        ),
    ],
)
def test_a_mistyped_command_line_exits_with_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    assert invoke(monkeypatch, *arguments) == 2
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            TraceError("a.jsonl:3: no turns", hint="agentload trace check a.jsonl"),
            1,
            "error: a.jsonl:3: no turns\nhint: agentload trace check a.jsonl\n",
        ),
        (AgentloadError("no hint here"), 1, "error: no hint here\n"),
        (
            UsageError("--swap needs two endpoints", hint="name two"),
            2,
            "error: --swap needs two endpoints\nhint: name two\n",
        ),
        (GateError("turn time +6%, gate +5%"), 3, "error: turn time +6%, gate +5%\n"),
        (
            InterruptError("stopped after 41 of 96 calls", hint="--resume r1"),
            130,
            "error: stopped after 41 of 96 calls\nhint: --resume r1\n",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x.yaml"),
            1,
            "error: No such file or directory: x.yaml\nhint: check the path, or name another\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "error: No space left on device\nhint: free some disk space, or write elsewhere\n",
        ),
        (
            FileExistsError(errno.EEXIST, "File exists", "out"),
            1,
            "error: File exists: out\nhint: a file is in the way: name another folder\n",
        ),
        (
            UnicodeEncodeError("utf-8", "x\udcff.duckdb", 1, 2, "surrogates not allowed"),
            2,
            (
                "error: not UTF-8: 'x\\udcff.duckdb'\nhint: name files, and whatever else is "
                "stored, in UTF-8\n"
            ),
        ),
        (typer.TyperException("odd"), 1, "error: odd\n"),
    ],
)
def test_what_the_user_can_mend_is_an_error_a_hint_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    said: str,
) -> None:
    fail_with(monkeypatch, error)
    assert invoke(monkeypatch, "doctor") == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("ours"),
        OSError(errno.EBADF, "Bad file descriptor"),
        FileExistsError(errno.EEXIST, "File exists"),
    ],
)
def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fail_with(monkeypatch, error)
    with pytest.raises(type(error)):
        invoke(monkeypatch, "doctor")


def test_debugging_shows_where_an_error_came_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTLOAD_DEBUG", "1")
    fail_with(monkeypatch, TraceError("odd"))
    assert invoke(monkeypatch, "doctor") == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("error: odd\n")


def test_ctrl_c_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agentload.cli import doctor

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "CHECKS", (interrupt,))
    assert invoke(monkeypatch, "doctor") == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")


def run_with_stdout(
    arguments: tuple[str, ...], prepare: Callable[[], int], *, unbuffered: str = ""
) -> tuple[int, bytes]:
    stdout = prepare()
    try:
        done = subprocess.run(
            [*AGENTLOAD, *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(stdout)
    return done.returncode, done.stderr


def test_a_reader_that_left_is_no_reason_to_speak() -> None:
    def closed_pipe() -> int:
        reader, writer = os.pipe()
        os.close(reader)
        return writer

    assert run_with_stdout(("--help",), closed_pipe) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_an_error_and_a_hint(unbuffered: str) -> None:
    said = b"error: No space left on device\nhint: free some disk space, or write elsewhere\n"
    full = partial(os.open, "/dev/full", os.O_WRONLY)
    assert run_with_stdout(("--version",), full, unbuffered=unbuffered) == (1, said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_verb_whose_standard_streams_are_closed_does_its_work(
    tmp_path: Path, closed: str
) -> None:
    told = tmp_path / "told"
    script = f'"$@" {closed}; echo $? > {told}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *AGENTLOAD, "trace", "generate", "rag", "sessions=1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (told.read_text(), done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("shared", "mask", "modes"),
    [
        pytest.param("", 0o022, (0o700, 0o600), marks=pytest.mark.slow),
        ("", 0o000, (0o700, 0o600)),
        ("1", 0o027, (0o750, 0o640)),
    ],
)
def test_what_a_verb_writes_is_its_user_s_alone_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, mask: int, modes: tuple[int, int]
) -> None:
    folder, file = modes
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLOAD_SHARED", shared)
    servers = "--profile llama-3.1-8b-h100 --arms bf16,fp8"
    played = f"simulate demo-rag {servers} --pairs 2 --max-calls 4 --db x.duckdb"
    before = os.umask(mask)
    try:
        for verb in (played, "report x.duckdb -o report"):
            assert invoke(monkeypatch, *verb.split()) == 0
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert len(made) > 4
    assert {each.stat().st_mode & 0o777 for each in made if each.is_dir()} == {folder}
    assert {each.stat().st_mode & 0o777 for each in made if each.is_file()} == {file}


@pytest.mark.parametrize(("limit", "is_told"), [(900 << 20, True), (4 << 30, False), (-1, False)])
def test_a_limit_at_which_libraries_crash_is_said_before_they_do(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    limit: int,
    is_told: bool,  # noqa: FBT001 (a table)
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(cli, "run", lambda _: 0)
    assert cli.main() == 0
    assert capsys.readouterr().err.startswith("caveat: `ulimit -v` allows 900 MB") is is_told


@pytest.mark.parametrize(("outer", "told"), [(None, "0027"), ("0002", "0002")])
def test_what_a_verb_starts_learns_the_umask_of_the_user(
    monkeypatch: pytest.MonkeyPatch, outer: str | None, told: str
) -> None:
    seen: list[tuple[str | None, int]] = []

    def run(_: list[str]) -> int:
        mask = os.umask(0)
        os.umask(mask)
        seen.append((os.environ.get("AGENTLOAD_UMASK"), mask))
        return 0

    monkeypatch.setattr(cli, "run", run)
    if outer is None:
        monkeypatch.delenv("AGENTLOAD_UMASK", raising=False)
    else:  # it was started by another verb, which has changed the umask already
        monkeypatch.setenv("AGENTLOAD_UMASK", outer)
    before = os.umask(0o027)
    try:
        assert cli.main() == 0
    finally:
        os.umask(before)
    assert seen == [(told, 0o077)]
    assert os.environ.get("AGENTLOAD_UMASK") == outer


def test_an_output_that_lacks_a_character_gets_it_escaped() -> None:
    odd = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run([*AGENTLOAD, "profile", "list"], capture_output=True, env=odd, check=True)
    assert rb"\u2013" in done.stdout


def test_a_mistake_of_ours_is_not_hidden_by_what_failed_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, mistake = AgentloadError("the server is gone"), KeyError("arm")
    for errors in (
        [refused, mistake],
        [mistake, refused],
        [refused, ExceptionGroup("inner", [mistake])],
    ):
        fail_with(monkeypatch, ExceptionGroup("tasks", errors))
        with pytest.raises(ExceptionGroup, match="tasks"):
            cli.main()
    fail_with(
        monkeypatch,
        ExceptionGroup(
            "tasks", [refused, ExceptionGroup("inner", [AgentloadError("and so is the other")])]
        ),
    )
    assert cli.main() == cli.FAILED
    assert capsys.readouterr().err == "error: the server is gone\n"
