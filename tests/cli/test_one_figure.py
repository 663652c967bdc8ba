"""A decision has one figure for one thing: on the last screen, on its pages, in `advise` and in
its file.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agentload.cli import main as cli
from agentload.cli._closing import MOST
from agentload.report.format import minutes

FOUND = ("decide", "demo-chat", "--profile", "llama-3.1-8b-h100", "--arms", "bf16,fp8")
_INTERVAL = r"([+−][\d.]+)% \[([+−][\d.]+), ([+−][\d.]+)\]"
_MISSING = re.compile(r"([\d,]+) paired questions, (\S+ \w+), ([\d.]+) USD")
FORMATS = ("decision.md", "decision.json", "decision.html")


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["agentload", *arguments])
    assert cli.main() == 0
    return capsys.readouterr().out


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def unlike(screen: str, advice: str, found: dict[str, Any]) -> dict[str, object]:
    """Return what the last screen says otherwise than the decision file, or `advise`."""
    lines, decision = screen.splitlines(), found["decision"]
    (verdict,) = decision["server"]
    latency = next(line for line in lines if line.startswith("turn latency"))
    changes = [each for each in decision["changes"] if each["metric"] == "turn_ms"]
    change = max(changes, key=lambda each: each["calls"])
    relative = change["relative"]
    shown = re.search(_INTERVAL, latency)
    assert shown, latency
    differ: dict[str, object] = {}
    if f"{len(change['by_pair'])} block pairs" not in screen:
        differ["pairs"] = len(change["by_pair"])
    for place, end in enumerate(("value", "low", "high"), start=1):
        if abs(number(shown[place]) - 100 * relative[end]) > 0.0501:
            differ[end] = (shown[place], relative[end])
    asked = re.search(r"accuracy at .*?, ([\d,]+) questions", " ".join(screen.split()))
    if asked and number(asked[1]) != verdict["safe"]["answers"]["questions"]:
        differ["questions"] = asked[1]
    for count, took, usd in _MISSING.findall(" ".join(screen.split())):
        (need,) = verdict["safe"]["needs"]
        if (number(count), took) != (need["pairs"], minutes(need["minutes"])):
            differ["missing"] = (count, took, need)
        if abs(number(usd) - need["usd"]) > 0.006 or f"+{count} questions" not in advice:
            differ["cost"] = (usd, need)
    commands = {each["command"] for each in found["do_now"]}
    unfolded = screen.replace(" \\\n", " ")
    for command in re.findall(r"^    (agentload .*)$", unfolded, flags=re.MULTILINE):
        if re.sub(r" +", " ", command) not in commands:
            differ["command"] = command
    headline = f"{found['headline'][:1].upper()}{found['headline'][1:]}"
    sure = next(line for line in advice.splitlines() if line.startswith("How sure?"))
    flat = {"screen": " ".join(screen.split()), "advise": " ".join(advice.split())}
    for where, text in flat.items():
        differ |= {each: where for each in (headline, sure) if each not in text}
    return differ


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--budget", "4m"), id="speed"),
        pytest.param(
            ("--budget", "6m", "--slo", "ttft=2s,tpot=50ms", "--agents", "400"),
            id="all",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_decision_says_the_same_on_its_screen_its_pages_and_in_its_file(
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "101")
    typed = (*FOUND, *options, "--sessions", "2", "--price", "2", "--db", "x.duckdb")
    screen = said(monkeypatch, capsys, *typed, "--out", "now")
    advice = said(monkeypatch, capsys, "advise", "x.duckdb")
    said(monkeypatch, capsys, "report", "x.duckdb", "-o", "then")
    found = json.loads(Path("now/decision.json").read_text(encoding="utf-8"))
    assert unlike(screen, advice, found) == {}
    assert len(screen.splitlines()) <= MOST
    assert max(map(len, screen.splitlines())) <= 100
    for name in FORMATS:
        assert Path("then", name).read_bytes() == Path("now", name).read_bytes(), name
    other = re.sub(_INTERVAL, "+9.9% [+9.8, +9.99]", screen).replace(" block pairs", " pairs")
    assert {*unlike(other, advice, found)} == {"pairs", "value", "low", "high"}
