import errno
import json
import platform
import re
import resource
import sys
import tempfile
from pathlib import Path

import pytest

from agentload import builtin
from agentload.cli import doctor
from agentload.cli import main as cli
from agentload.cli.doctor import MachineCheck
from agentload.compiled import NOT_INSTALLED
from agentload.live.reader import OTHER_VERSION

FINE = MachineCheck(name="python", state="ok", seen="CPython 3.11.7")
POOR = MachineCheck(
    name="open files",
    state="warn",
    seen="256",
    advice="more than 128 streams need `ulimit -n 4096`",
)
BAD = MachineCheck(name="traces", state="fail", seen="none found", advice="reinstall")


def invoke(monkeypatch: pytest.MonkeyPatch, checks: tuple[MachineCheck, ...], *options: str) -> int:
    monkeypatch.setattr(doctor, "CHECKS", tuple((lambda check=check: check) for check in checks))
    monkeypatch.setattr(sys, "argv", ["agentload", "doctor", *options])
    return cli.main()


def test_each_check_is_a_line_and_each_advice_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, (FINE, POOR)) == 0
    assert capsys.readouterr().out == (
        "ok    python      CPython 3.11.7\n"
        "warn  open files  256\n"
        "                  → more than 128 streams need `ulimit -n 4096`\n"
    )  # fmt: skip


def test_a_failed_check_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, (FINE, BAD)) == 1
    assert "fail  traces" in capsys.readouterr().out


def test_json_holds_what_the_lines_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, (FINE, BAD), "--json") == 1
    assert json.loads(capsys.readouterr().out) == [
        {"name": "python", "state": "ok", "seen": "CPython 3.11.7", "advice": None},
        {"name": "traces", "state": "fail", "seen": "none found", "advice": "reinstall"},
    ]


@pytest.mark.loopback
def test_every_check_answers_on_this_machine() -> None:
    checks = [check() for check in doctor.CHECKS]
    assert len({check.name for check in checks}) == len(checks)
    assert [check.name for check in checks if (check.state == "ok") != (check.advice is None)] == []


@pytest.mark.parametrize(
    ("limits", "state", "advice"),
    [
        ((1024, 524288), "warn", "more than 512 streams need `ulimit -n 4096`"),
        ((1024, 2048), "warn", "more than 512 streams need `ulimit -n 2048`"),
        ((1024, resource.RLIM_INFINITY), "warn", "more than 512 streams need `ulimit -n 4096`"),
        ((4096, 4096), "ok", None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok", None),
    ],
)
def test_few_open_files_name_the_command_that_raises_them(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], state: str, advice: str | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    check = doctor._open_files()
    assert (check.state, check.advice) == (state, advice)


@pytest.mark.parametrize(
    ("stamps", "state", "seen"),
    [
        ((True, True), "ok", "send yes, receive yes"),
        ((False, True), "warn", "send no, receive yes"),
        ((True, False), "warn", "send yes, receive no"),
    ],
)
def test_missing_kernel_timestamps_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, stamps: tuple[bool, bool], state: str, seen: str
) -> None:
    monkeypatch.setattr(doctor, "_stamps", lambda: stamps)
    check = doctor._kernel_timestamps()
    assert (check.state, check.seen) == (state, seen)


@pytest.mark.loopback
def test_a_kernel_that_refuses_timestamps_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "stamp_sent", lambda _: False)
    assert doctor._stamps() == (False, False)


def test_another_system_than_linux_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert doctor._system().state == "warn"


def test_a_missing_library_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("numpy", "no-such-library"))
    check = doctor._libraries()
    assert (check.state, check.seen) == ("fail", "missing: no-such-library")


def test_ray_is_named_where_it_is_installed_and_where_it_is_not() -> None:
    assert re.search(
        r"ray \d|no ray \(--on ray: pip install 'agentload\[ray\]'\)", doctor._libraries().seen
    )


def test_missing_data_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "names", lambda _: ())
    assert doctor._shipped("traces").state == "fail"


def test_a_working_directory_that_takes_no_file_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*, dir: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    check = doctor._working_directory()
    assert (check.state, check.seen) == ("fail", f"{tmp_path}: Permission denied")


def test_defaults_in_files_are_shown_with_what_no_verb_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert (doctor._defaults_in_files().state, doctor._defaults_in_files().seen) == (
        "ok",
        "no agentload.toml",
    )
    (tmp_path / "agentload.toml").write_text(
        'db = "x.duckdb"\nsesions = 3\n[watch.add]\npairs = 4\n[replay]\nfoo = 2\n'
    )
    found = doctor._defaults_in_files()
    assert (found.state, found.seen) == (
        "warn",
        "agentload.toml: db, sesions, [watch add] pairs, [replay] foo",
    )
    assert found.advice == "no verb has: agentload.toml: sesions, agentload.toml: foo"


def test_what_would_make_this_machine_faster_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "COMPILED", NOT_INSTALLED)
    check = doctor._compiled()
    assert (check.state, check.advice) == ("ok", None)
    assert check.seen.endswith(
        "is not installed; to use less of a core: pip install ./speedups, in the folder of "
        "agentload's sources"
    )


@pytest.mark.parametrize(
    ("found", "state", "seen"),
    [
        (("thread", ""), "ok", "by a thread"),
        (
            ("interpreter", "agentload-speedups is not installed"),
            "ok",
            "by the interpreter: agentload-speedups is not installed",
        ),
        (("interpreter", OTHER_VERSION), "warn", f"by the interpreter: {OTHER_VERSION}"),
    ],
)
def test_who_reads_the_sockets_is_said_and_why(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, str], state: str, seen: str
) -> None:
    monkeypatch.setattr(doctor, "who_reads", lambda: found)
    check = doctor._reader()
    assert (check.state, check.seen) == (state, seen)
