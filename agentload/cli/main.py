"""Run one verb, and turn what went wrong into `error:` and `hint:` lines and an exit code."""

import codecs
import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from threading import active_count
from typing import Annotated, Final, Literal

import typer
from typer.main import get_command

from agentload import __version__
from agentload.cli._lazy import LazyGroup
from agentload.cli._print import Style, notice, paint
from agentload.cli._signals import handle_signals
from agentload.errors import (
    AgentloadError,
    GateError,
    InterruptError,
    UsageError,
    first_of,
    is_out_of_memory,
)
from agentload.visible import visible

FAILED: Final = 1
USAGE: Final = 2
GATE: Final = 3
INTERRUPTED: Final = 130
LEAST_ADDRESSES: Final = 1500 << 20
"""Bytes of addresses (`ulimit -v`) with which every library has its threads and its memory.

With 900 MB a simulation of a shipped trace ended in a segmentation fault of a library.
"""

# What the machine refuses and the user can mend; an OSError that
# names a file is the user's too, any other is a bug of ours.
_REFUSALS: Final = {
    errno.ENOSPC: "free some disk space, or write elsewhere",
    errno.EDQUOT: "free some of your disk quota, or write elsewhere",
    errno.EMFILE: "raise the open file limit: ulimit -n 65536",
}
_PLACES: Final = {
    errno.EEXIST: "a file is in the way: name another folder",
    errno.ENOTDIR: "a part of the path is a file: name another",
    errno.EISDIR: "that is a folder: name a file",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "its symbolic links lead back to themselves",
    errno.ENOENT: "check the path, or name another",
    errno.EPERM: "change its permissions, or name another",
    errno.EACCES: "change its permissions, or name another",
    errno.EROFS: "write elsewhere",
}

_MENDABLE: Final = (AgentloadError, typer.TyperException, OSError, UnicodeEncodeError)
_STYLES: Final[dict[str, Style]] = {"error": "bad", "hint": "faint"}

_app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`agentload help VERB` explains a verb. Defaults of options: agentload.toml "
    "(docs/cli.md).",
)


# typer hands the option's value over by position
def _print_version(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        print(f"agentload {__version__}")
        raise typer.Exit


@_app.callback(
    help="Replay agent traces against serving configurations, measure honestly, and write the "
    "decision."
)
def _root(
    *,
    version: Annotated[  # its callback has acted before any verb is looked for
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have SIGTERM and a closed terminal do what Ctrl-C does: verbs
    then end the servers that they started. `nohup` stays as it is.
    """
    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with handle_signals(
        {
            number: signal.default_int_handler
            for number in ends
            if signal.getsignal(number) == signal.SIG_DFL
        }
    ):
        yield


@contextmanager
def _private_files() -> Iterator[None]:
    """Give new files and folders to their owner alone: they hold prompts and answers.

    With `AGENTLOAD_SHARED=1` the user's umask decides. What runs on the user's behalf, such as
    a server that is launched, learns the user's umask from the environment.
    """
    before = os.umask(0)
    os.umask(before if os.environ.get("AGENTLOAD_SHARED") == "1" else before | 0o077)
    is_first = "AGENTLOAD_UMASK" not in os.environ
    os.environ.setdefault("AGENTLOAD_UMASK", f"{before:04o}")
    try:
        yield
    finally:
        os.umask(before)
        if is_first:
            del os.environ["AGENTLOAD_UMASK"]


def _say_if_cramped() -> None:
    """Warn of a limit at which native libraries end the process without a word."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < LEAST_ADDRESSES:
        notice(
            f"caveat: `ulimit -v` allows {limit >> 20:,} MB of addresses, and libraries may crash "
            f"below {LEAST_ADDRESSES >> 20:,} MB: ulimit -v unlimited"
        )


def _standard_streams() -> None:
    """See to it that what is printed goes somewhere: to nobody where
    a stream is closed, escaped where its encoding lacks a character.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # It takes the number that was closed: else a database
            # may get it, and with it what a library prints.
            # for as long as the process lives
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
        elif (
            mode == "w"
            and isinstance(stream, TextIOWrapper)
            and codecs.lookup(stream.encoding).name != "utf-8"
        ):
            stream.reconfigure(errors="backslashreplace")


def main() -> int:
    """Run the command line of this process and return its exit code."""
    _standard_streams()
    _say_if_cramped()
    try:
        with _interruptible(), _private_files():
            code = run(sys.argv[1:] or ["--help"])
        # A reader that left shows itself only when the last bytes leave.
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads: say nothing. Not 0, so that a gate
        # behind a pipe never passes by accident.
        _drop_what_stdout_holds()
        return FAILED
    except Exception as error:  # noqa: BLE001  # what is not the user's is raised again
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _drop_what_stdout_holds()
        return _report_failure(error)
    if code == INTERRUPTED:
        _say("error", "interrupted")
    return code


def _drop_what_stdout_holds() -> None:
    """Let the interpreter's exit write the rest to nowhere: it would fail again, and say so."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_failure(error: Exception) -> int:
    """Say what went wrong and return the exit code, or raise it again
    where it is a bug of ours; the caller keeps no reference to it.
    """
    mendable, mistakes = (
        error.split(_MENDABLE) if isinstance(error, ExceptionGroup) else (None, None)
    )
    first = (
        error if mendable is None or mistakes is not None else first_of(mendable)
    )  # of what ran side by side, the first says why
    if isinstance(first, _MENDABLE):
        return _explain(first)
    if not is_out_of_memory(error):
        raise error
    _say("error", "out of memory; what was measured is in its journal")
    _say("hint", "use --resume on a machine with more memory, or with fewer sessions at once")
    if active_count() > 1:
        # Python would wait for a thread that loads rows, and DuckDB's own end this process by a
        # segmentation fault where they have no memory.
        _drop_what_stdout_holds()
        os._exit(FAILED)
    return FAILED


def run(arguments: list[str]) -> int:
    """Run one command line in this process and return its exit code; what went wrong is raised."""
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    # typer turns Ctrl-C into its Exit(130), and hands back
    # every Exit's code, or what the verb returned: nothing.
    result = get_command(_app).main(arguments, prog_name="agentload", standalone_mode=False)
    assert result is None or isinstance(result, int), result
    return result or 0


def _explain(error: AgentloadError | typer.TyperException | OSError | UnicodeEncodeError) -> int:
    if os.environ.get("AGENTLOAD_DEBUG"):
        traceback.print_exception(error)
    match error:
        case AgentloadError():
            _say("error", error.message)
            _say("hint", error.hint)
            return _exit_code(error)
        case typer.TyperException():
            from agentload.cli._mistakes import explain  # late: most lines have no mistake

            message, hint = explain(error)
            _say("error", message)
            _say("hint", hint)
            return error.exit_code
        case UnicodeEncodeError():
            if (
                "surrogates" not in error.reason
            ):  # as Python reads a file's name, or an argument, that is not UTF-8
                raise error
            _say("error", f"not UTF-8: {error.object[:200]!r}")
            _say("hint", "name files, and whatever else is stored, in UTF-8")
            return USAGE
        case OSError():
            number = error.errno or 0
            hint = _REFUSALS.get(number) or (
                None if error.filename is None else _PLACES.get(number)
            )
            if hint is None and error.filename is None:
                raise error
            place = f": {error.filename}" if error.filename else ""
            _say("error", f"{error.strerror}{place}")
            _say("hint", hint)
            return FAILED


def _exit_code(error: AgentloadError) -> int:
    match error:
        case UsageError():
            return USAGE
        case GateError():
            return GATE
        case InterruptError():
            return INTERRUPTED
        case _:
            return FAILED


def _say(kind: Literal["error", "hint"], text: str | None) -> None:
    if text:
        print(f"{paint(f'{kind}:', _STYLES[kind], sys.stderr)} {visible(text)}", file=sys.stderr)
