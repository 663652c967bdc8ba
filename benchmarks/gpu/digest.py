"""Turn a folder that phases left behind into reports, profiles,
rows of published figures, a prior of starts, and one page about it.

    python -m benchmarks.gpu.digest build/gpu/kept [--house .]

Into the house go `reports/gpu/`, `profiles/NAME-measured.yaml` and rows of
`benchmarks/published.yaml`; a folder of a rehearsal leaves the last two alone.
Weights were random, so nothing of it speaks of answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import yaml
from scipy import stats

from advisor.statistics.starts import ENOUGH_STARTS
from agentload.emulator.profile import read, text
from agentload.emulator.steptime import prefill_s
from agentload.evidence.view import run_view
from agentload.model.profile import ArmProfile
from agentload.store.database import reading
from benchmarks.gpu import plan
from benchmarks.gpu.make import profiled
from benchmarks.gpu.plan import HOUSE
from benchmarks.gpu.predict import PREDICTION, Ends, changes, holds
from benchmarks.gpu.run import AGENTLOAD

RANDOM: Final = "The weights are random: no accuracy follows from any of this."
WORK: Final = Path("build/gpu/made")
KEPT: Final = Path("build/gpu/kept")
LENGTHS: Final = (1024, 8192, 32768, 100_000)
LEVELS: Final = """
SELECT arm, pair, avg(ln(turn_ms)) FROM turns WHERE run_id = ? AND status = 'ok' AND turn_ms > 0
    GROUP BY arm, pair ORDER BY arm, pair
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What a start of a server adds to its log latency: its
    standard deviation, and what it may be at most (97.5%).
    """

    spread: float
    most: float
    starts: int

    @property
    def prior(self) -> float:
        """Return what to go by: what few starts show is too little
        to be trusted, or 0, so then the most that they allow.
        """
        return self.spread if self.starts > ENOUGH_STARTS and self.spread > 0 else self.most


def digest(folder: Path, house: Path, *, prediction: Path = PREDICTION) -> str:
    """Write what a folder comes to; return the page."""
    data, done = (
        plan.kit(),
        [
            json.loads(line)
            for line in (folder / "done.jsonl").read_text(encoding="utf-8").splitlines()
        ],
    )
    places = sorted({line["place"] for line in done})
    is_real = places == ["gpu"]
    out = house / "reports" / "gpu"
    out.mkdir(parents=True, exist_ok=True)
    predicted = yaml.safe_load(prediction.read_text(encoding="utf-8"))
    said = (
        "on a GPU"
        if is_real
        else f"a rehearsal ({', '.join(places)}), whose figures say nothing of a GPU"
    )
    parts = [f"# Measured by the kit: {said}", RANDOM, *_tried(done)]
    found: list[dict[str, Any]] = []
    levels: list[list[tuple[int, float]]] = []
    rows: list[dict[str, Any]] = []
    for model in data["models"]:
        database = folder / f"{model}.duckdb"
        if not database.exists():
            continue
        with reading(database) as connection:
            runs = [
                str(run)
                for (run,) in connection.execute(
                    "SELECT run_id FROM runs ORDER BY created_ns"
                ).fetchall()
            ]
            levels += [
                level
                for run in runs
                if run.startswith("restarts")
                for level in start_levels(connection, run)
            ]
        for run in runs:
            report = _report(database, run, out / f"{model}-{run}")
            found.append(
                {"model": model, "run": run, "sha256": _sha256(database), "report": report}
            )
        if "profile" in runs:
            suffix = "measured" if is_real else "rehearsal"
            parts += _profile(
                data,
                model,
                database,
                (house / "profiles" if is_real else out) / f"{_stem(data, model)}-{suffix}.yaml",
            )
            lines = next(
                (
                    each["report"]
                    for each in found
                    if (each["model"], each["run"]) == (model, "profile")
                ),
                None,
            )
            rows += list(figures(lines, f"{_stem(data, model)}-{suffix}"))
    starts = spread_of(levels)
    if starts is not None:
        (out / "starts.yaml").write_text(
            f"# {RANDOM} {starts.starts} starts added {starts.spread:.4f}, at most "
            f"{starts.most:.4f}: for agentload report --policy.\n"
            f"start_spread: {starts.prior:.4f}\n"
        )
    parts += [*_compared(predicted, found), *_of_starts(starts), *_kept(found)]
    if is_real:
        publish(
            house / "benchmarks" / "published.yaml", rows, min(line["at"] for line in done)[:10]
        )
    page = "\n\n".join(parts) + "\n"
    (out / "README.md").write_text(page, encoding="utf-8")
    return page


def start_levels(connection: duckdb.DuckDBPyConnection, run: str) -> list[list[tuple[int, float]]]:
    """Return, for each arm of a run, the start and the mean log latency of each of its pairs."""
    began = {
        (play.arm, play.pair): play.restart
        for play in run_view(connection, run).plays
        if not play.is_void
    }
    rows = connection.execute(LEVELS, [run]).fetchall()
    kept = [(arm, began[arm, pair], level) for arm, pair, level in rows if (arm, pair) in began]
    return [
        [(start, level) for _, start, level in lines]
        for _, lines in groupby(kept, key=lambda row: row[0])
    ]


def spread_of(levels: Sequence[Sequence[tuple[int, float]]]) -> Starts | None:
    """Return what starts add beyond the scatter of
    pairs within one; None where that cannot be told.
    """
    between, within, count = [], [], 0
    each_start = []
    for arm in levels:
        by_start = [
            [level for _, level in lines]
            for _, lines in groupby(sorted(arm), key=lambda line: line[0])
        ]
        if len(by_start) > 1:
            means = [float(np.mean(each)) for each in by_start]
            between.append((float(np.var(means, ddof=1)), len(means) - 1))
            within += [
                (float(np.var(each, ddof=1)) / len(each), len(each) - 1)
                for each in by_start
                if len(each) > 1
            ]
            each_start += by_start
            count += len(by_start)
    freedom = sum(degrees for _, degrees in between)
    if freedom < 2:
        return None
    total = sum(value * degrees for value, degrees in between) / freedom
    own = sum(value * degrees for value, degrees in within) / max(
        1, sum(degrees for _, degrees in within)
    )
    most = total * freedom / float(stats.chi2.ppf(0.025, freedom))
    return Starts(spread=max(0.0, total - own) ** 0.5, most=most**0.5, starts=count)


def figures(report: Mapping[str, Any] | None, profile: str) -> Iterator[dict[str, Any]]:
    """Yield the lines through the token latencies of a report as rows of published figures."""
    for line in [] if report is None else report["decision"]["itl"]:
        for what, name, unit in (
            ("slope", "slope_ms_per_token", "ms/token"),
            ("intercept", "intercept_ms", "ms"),
        ):
            yield {
                "what": what,
                "unit": unit,
                "profile": profile,
                "arm": line["arm"],
                "value": float(f"{line[name]['value']:.4g}"),
            }


def publish(path: Path, rows: Sequence[Mapping[str, Any]], date: str) -> None:
    """Add rows to a list of published figures, once for each date."""
    before, source = path.read_text(encoding="utf-8"), f"here-{date}"
    if f"  {source}:" in before or not rows:
        return
    text = before.replace(
        "sources:\n",
        f"sources:\n  {source}: measured here with random weights, {date}; reports/gpu\n",
        1,
    )
    for (what, unit), group in groupby(
        sorted(rows, key=lambda row: (row["what"], row["unit"])),
        key=lambda row: (row["what"], row["unit"]),
    ):
        own = ", ".join(
            f"{{profile: {row['profile']}, arm: {row['arm']}, value: {row['value']}}}"
            for row in group
        )
        text += (
            f"  - {{what: {what}, unit: {unit}, source: {source}, place: one request at a time, "
            "origin: fitted, tolerance: 0.1,\n"
        )
        text += f"     figures: [{own}]}}\n"
    path.write_text(text, encoding="utf-8")


def _report(database: Path, run: str, out: Path) -> dict[str, Any] | None:
    """Write the report of a run; return its decision
    file, None where there is nothing to decide.
    """
    command = [
        AGENTLOAD,
        "report",
        str(database),
        "--run",
        run,
        "-o",
        str(out),
        "--format",
        "md,html,json",
        "--quiet",
    ]
    if subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ).returncode:
        return None
    decided: dict[str, Any] = json.loads((out / "decision.json").read_text(encoding="utf-8"))
    if not decided["decision"]["changes"]:  # every call failed: done.jsonl says why
        shutil.rmtree(out)
        return None
    head = {"decision.md": f"> {RANDOM}\n\n", "decision.html": "", "decision.json": ""}
    for name, said in head.items():
        page = out / name
        page.write_text(
            said + _at_home(page.read_text(encoding="utf-8"), database, run), encoding="utf-8"
        )
    rows = [AGENTLOAD, "runs", "export", run, "--db", str(database), "--redact", "--quiet"]
    subprocess.run([*rows, "-o", str(out / "run.tar.zst")], check=True, stdout=subprocess.DEVNULL)
    return decided


def _at_home(text: str, database: Path, run: str) -> str:
    """Name the kit's folders as they are named here, not on the machine that was measured."""
    with reading(database) as connection:
        found = connection.execute(
            "SELECT json_extract_string(study, '$.servers.endpoints') FROM runs WHERE run_id = ?",
            [run],
        ).fetchone()
    work = Path(found[0]).parent if found and found[0] else WORK
    if not work.is_absolute():  # a redacted run has no folders
        return text
    return text.replace(str(work), str(WORK)).replace(str(work.with_name("kept")), str(KEPT))


def _profile(data: Mapping[str, Any], model: str, database: Path, path: Path) -> list[str]:
    """Fit a profile to a model's run and say how far it is from the one that the kit goes by."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known, like = profiled(data, model), path.with_suffix(".like")
    like.write_text(text(known), encoding="utf-8")
    command = [
        AGENTLOAD,
        "profile",
        "fit",
        str(database),
        "--run",
        "profile",
        "--like",
        str(like),
        "-o",
        str(path),
        "--quiet",
    ]
    fitted = subprocess.run(command, check=False, capture_output=True, text=True)
    like.unlink()
    head = f"## Profile of {model}"
    if fitted.returncode:
        return [head, f"None could be fitted: {fitted.stderr.strip().splitlines()[0]}"]
    path.write_text(f"# {RANDOM}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    measured = {arm.name: arm for arm in read(str(path)).arms}
    pairs = [(arm, measured[arm.name]) for arm in known.arms if arm.name in measured]
    lines = [
        f"| {arm.name}, {length:,} tokens | {_off(arm, own, length)} |"
        for arm, own in pairs
        for length in LENGTHS
    ]
    return [
        head,
        f"`{path.name}` / the profile that the kit goes by, of one request:",
        _table("| | TTFT, ms | time per token, ms |", lines),
    ]


def _off(arm: ArmProfile, own: ArmProfile, length: int) -> str:
    """Say what a profile has for one request, what was measured, and how far they are apart."""

    def token_ms(each: ArmProfile) -> float:
        assert each.step is not None
        return each.step.decode_ms + each.step.decode_ms_per_token * length

    both = [
        (1000 * prefill_s(own, length), 1000 * prefill_s(arm, length)),
        (token_ms(own), token_ms(arm)),
    ]
    return " | ".join(
        f"{measured:,.2f} / {known:,.2f} ({measured / known - 1:+.1%})" for measured, known in both
    )


def _compared(
    predicted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compare what was predicted of each decision with what was measured."""
    # A decision that gave a load up goes on as CHAT-2-sessions: the last one counts.
    reports = {(each["model"], each["run"].partition("-")[0]): each["report"] for each in found}
    lines = []
    for each in predicted:
        report = reports.get((each["model"], each["trace"]))
        measured = {
            (row["arm"], row["metric"]): row for row in ([] if report is None else changes(report))
        }
        for row in each["changes"]:
            own = measured.get((row["arm"], row["metric"]))
            name = (
                f"{each['model']}, {each['trace']}, {row['arm']}, "
                f"{row['metric'].removesuffix('_ms')}"
            )
            overlap = "intervals overlap" if own and holds(row, own) else "intervals do not overlap"
            verdict = "not measured" if own is None else overlap
            lines.append(
                f"| {name} | {_shown(row)} | {'' if own is None else _shown(own)} | {verdict} |"
            )
    count = Counter(line.rpartition(" | ")[2].removesuffix(" |") for line in lines)
    known = len(lines) - count["not measured"]
    said = (
        f"Of {len(lines)} predicted changes {known} were measured. The intervals of "
        f"{count['intervals overlap']} overlap; wide ones overlap with most."
    )
    return [
        "## Predicted and measured",
        said,
        *cards(found),
        _table("| decision, change | predicted | measured | |", lines),
    ]


def cards(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say where a prediction was of another card than the measurement."""
    for each in found:
        if each["report"] is None:
            continue
        there, here = each["report"]["decision"]["gpu"], profiled(plan.kit(), each["model"]).arms[0]
        if there != here.gpu.name:
            yield (
                f"{each['model']}: predicted for {here.gpu.name}, measured on {there}. An "
                "agreement says nothing of the prediction."
            )


def _shown(change: Ends) -> str:
    low, high = change["low"], change["high"]
    if low is None and high is None:
        return "unknown"
    if low is None:
        return f"at most {high:+.1f}%"
    if high is None:
        return f"at least {low:+.1f}%"
    return f"{change['value']:+.1f}% [{low:+.1f}, {high:+.1f}]"


def _of_starts(starts: Starts | None) -> list[str]:
    told = "Too few starts to tell." if starts is None else ""
    if starts is not None:
        told = (
            f"{starts.starts} starts add {starts.spread:.1%} to a server's latency, at most "
            f"{starts.most:.1%}: [starts.yaml](starts.yaml)."
        )
    return ["## What a start adds", told]


def _tried(done: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        (
            f"| {line['at']} | {line['model']} | {line['phase']} | {line['step']} | "
            f"{line['ended']} | {line['seconds']:.0f} s |"
        )
        for line in done
    ]
    return [
        "## What was tried",
        _table("| ended (UTC) | model | phase | step | how | took |", lines),
    ]


def _kept(found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for each in found:
        run, report = each["run"], each["report"]
        named, said = (
            (run, "no report")
            if report is None
            else (f"[{run}]({each['model']}-{run}/decision.md)", report["headline"])
        )
        lines.append(f"| {each['model']} | {named} | {said} | `{each['sha256']}` |")
    return [
        "## Reports, and the digest of each database",
        _table("| model | run | says | SHA-256 of its database |", lines),
    ]


def _table(head: str, lines: Sequence[str]) -> str:
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *lines])


def _stem(data: Mapping[str, Any], model: str) -> str:
    return Path(data["models"][model]["profile"]).name.removesuffix(".yaml")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Digest a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--house", type=Path, default=HOUSE, help="root of the repository that it is kept in"
    )
    given = parser.parse_args()
    sys.stdout.write(digest(given.folder, given.house))


if __name__ == "__main__":
    main()
