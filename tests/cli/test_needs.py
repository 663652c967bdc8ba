"""An option that means nothing without another is
refused, where it was silently left out of account.
"""

import sys

import pytest

from agentload.cli import main as cli
from agentload.cli._lazy import verbs

EMULATED = ("--endpoints", "emulated:llama-3.1-8b-h100", "--dry-run")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            ("replay", "rag", *EMULATED, "--slo", "ttft=300"),
            "--slo does nothing without --capacity",
        ),
        (
            ("replay", "rag", *EMULATED, "--restarts", "3"),
            "--restarts does nothing without --launch",
        ),
        (("replay", "rag", *EMULATED, "--cv", "3"), "--cv does nothing without --rate"),
        (
            ("replay", "rag", *EMULATED, "--speed", "2", "--sessions", "3"),
            "--speed changes the trace's own starts",
        ),
        (
            ("simulate", "rag", "--profile", "llama-3.1-8b-h100", "--slo", "ttft=300"),
            "--slo does nothing without --find or --capacity",
        ),
        (
            ("simulate", "rag", "--profile", "llama-3.1-8b-h100", "--into", "RUN"),
            "--into does nothing without --find",
        ),
        (
            ("sweep", "--concurrency", *EMULATED),
            "a search decides what it tries by what it finds: it has no plan to print",
        ),
        (
            ("probe", "--endpoints", "emulated:llama-3.1-8b-h100", "--graphs"),
            "--graphs does nothing without --matrix",
        ),
        (
            ("probe", "--endpoints", "emulated:llama-3.1-8b-h100", "--into", "RUN"),
            "--into does nothing without --matrix",
        ),
        (
            ("probe", "--endpoints", "emulated:llama-3.1-8b-h100", "--db", "x.duckdb"),
            "--db does nothing without --into",
        ),
        (("launch", "--format", "compose"), "--format does nothing without --print"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_would_do_nothing_is_refused(
    line: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentload", *line])
    assert cli.main() == cli.USAGE
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {said}")
    assert "\nhint: " in printed


def test_an_option_with_what_it_needs_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["agentload", "replay", "rag", *EMULATED, "--rate", "1", "--cv", "3"]
    )
    assert cli.main() == 0, capsys.readouterr().err


def test_needs_name_parameters_that_there_are() -> None:
    for verb in verbs("agentload.cli"):
        if verb.function is not None and (needs := getattr(verb.run(), "needs", None)) is not None:
            known = verb.run().__annotations__.keys()
            assert {*needs, *(name for each in needs.values() for name in each)} <= known, verb.name
