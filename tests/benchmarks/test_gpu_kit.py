"""The kit for a GPU, without one: its plan by its values, its runner
on small commands, and its digest of what virtual time measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from agentload.emulator.profile import read
from agentload.kvmath.config import model_shape
from agentload.kvmath.pool import pool_of
from agentload.store.database import reading
from benchmarks.gpu import plan
from benchmarks.gpu.digest import RANDOM, Starts, cards, digest, figures, publish, spread_of
from benchmarks.gpu.make import make, profiled
from benchmarks.gpu.plan import HOUSE, Site
from benchmarks.gpu.predict import PREDICTION, holds
from benchmarks.gpu.run import AGENTLOAD, pack, patient, size_mb, trim
from benchmarks.published import figures as published
from tests.cli.test_help import understood
from tests.cli.watch.jobs import PATIENT
from tests.vllm.serving import executable, missing

KIT = plan.kit()
PROGRAMS = {"agentload": "agentload", "python": "python"}
STARTING_S = 10  # of a Python, and its end, on a busy machine
CARD_GIB = 79.6
ACTIVATIONS_GIB = 2.5  # of each server, graphs included


def site(folder: Path, place: str = "gpu", model: str = "llama-8b", vllm: str = "vllm") -> Site:
    return Site(place=place, model=model, folder=folder / "kept", work=folder / "work", vllm=vllm)


def commands(name: str, at: Site, **given: Any) -> dict[str, tuple[str, ...]]:
    known = plan.values(KIT, at, programs=PROGRAMS)
    return {
        step.name: step.command
        for step in plan.phase(KIT, name, known, **{"tries": {}, **given}).steps
    }


@pytest.mark.parametrize("place", KIT["places"])
@pytest.mark.parametrize("phase", KIT["phases"])
def test_every_command_of_a_phase_is_understood_wherever_it_runs(
    phase: str, place: str, tmp_path: Path
) -> None:
    for command in commands(phase, site(tmp_path, place)).values():
        assert not any("{" in word for word in command)
        assert command[0] != "agentload" or understood(list(command[1:])) is not None, command


def test_a_step_that_was_begun_is_resumed_and_one_that_cannot_be_gets_another_name(
    tmp_path: Path,
) -> None:
    at = site(tmp_path)
    assert commands("chat", at)["chat"][-2:] == ("--run-id", "chat")
    assert commands("chat", at, tries={"chat": 1}, begun=["chat"])["chat"][-2:] == (
        "--resume",
        "chat",
    )
    assert commands("chat", at, tries={"chat": 1})["chat"][-2:] == (
        "--run-id",
        "chat",
    )  # it ended before there was anything to resume
    assert commands("edge", at, tries={"far": 1})["far"][-2:] == ("--run-id", "far-2")


def test_no_phase_is_longer_than_nine_minutes_nor_is_a_step_longer_than_its_phase(
    tmp_path: Path,
) -> None:
    known = plan.values(KIT, site(tmp_path), programs=PROGRAMS)
    phases = [plan.phase(KIT, name, known, tries={}) for name in KIT["phases"]]
    assert max(each.limit_s for each in phases) == 540
    assert all(step.limit_s <= each.limit_s for each in phases for step in each.steps)
    orders = re.findall(
        r"^(Ten|Twenty|Thirty).*?\n```\n(.*?)```",
        (plan.KIT.parent / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    taken = 0.0
    for (name, block), minutes in zip(orders, (10, 20, 30), strict=True):
        taken += sum(
            KIT["phases"][each]["minutes"] for each in re.findall(r"gpu\.run (\w+)", block)
        )
        assert taken <= minutes, name


@pytest.mark.parametrize("place", KIT["places"])
@pytest.mark.parametrize("phase", KIT["phases"])
def test_a_phase_has_most_of_its_time_for_its_steps(phase: str, place: str) -> None:
    wanted = KIT["phases"][phase]
    grace_s = wanted.get("grace_s", KIT["places"][place]["grace_s"])
    assert 60 * wanted["minutes"] - grace_s >= 40


@pytest.mark.parametrize("model", KIT["models"])
def test_arms_differ_in_nothing_but_their_cache_and_all_of_them_fit_one_card(
    model: str, tmp_path: Path
) -> None:
    made = plan.arms(KIT, site(tmp_path, model=model), agentload="agentload")["arms"]
    own = {word for arm in KIT["arms"].values() for word in arm["flags"]}
    rest = {
        tuple(
            word
            for word in arm["launch"]["command"]
            if word not in own and not word.startswith("184")
        )
        for arm in made.values()
    }
    assert len(rest) == 1
    assert {"dummy", f"{KIT['models'][model]['kv_gib']}G"} <= set(*rest)
    weights = read(KIT["models"][model]["profile"]).arms[0].model.weight_gib
    assert weights is not None
    assert len(made) * (weights + KIT["models"][model]["kv_gib"] + ACTIVATIONS_GIB) <= CARD_GIB


@pytest.mark.parametrize("model", KIT["models"])
def test_a_model_has_the_geometry_of_the_profile_that_predicts_it_and_each_pool_holds_its_window(
    model: str,
) -> None:
    shape, known = (
        model_shape(plan.config(KIT, model, small=False), name=model),
        profiled(KIT, model).arms,
    )
    for arm in known:
        assert {replace(group, numbers=()) for group in shape.groups} == set(arm.model.groups)
        assert pool_of(arm).tokens >= KIT["places"]["gpu"]["values"]["window"]


def test_the_prediction_was_made_for_every_decision_of_the_kit_and_with_its_arms() -> None:
    predicted = yaml.safe_load(PREDICTION.read_text(encoding="utf-8"))
    assert [(each["trace"], each["model"]) for each in predicted] == [
        (trace, model) for trace in KIT["decisions"] for model in KIT["decisions"][trace]
    ]
    for each in predicted:
        assert {row["arm"] for row in each["changes"]} == set(
            KIT["models"][each["model"]]["arms"][1:]
        )


@pytest.mark.parametrize(
    ("predicted", "measured", "is_held"),
    [
        ((-8, -12, -4), (-11, -14, -8), True),
        ((-8, -10, -6), (0, -3, 3), False),
        ((-8, -30, 20), (5, -1, 11), True),
        ((-55, None, -55), (-70, None, -70), True),
        ((-55, None, -55), (-60, -70, -50), True),
        ((-55, None, -55), (-30, -40, -20), False),
        ((-55, None, -55), (10, 10, None), False),
        ((-55, None, -55), (None, None, None), False),
    ],
)
def test_a_prediction_holds_within_both_intervals(
    predicted: tuple[float | None, ...],
    measured: tuple[float | None, ...],
    is_held: bool,  # noqa: FBT001 - a row
) -> None:
    named = [
        dict(zip(("value", "low", "high"), each, strict=True)) for each in (predicted, measured)
    ]
    assert holds(*named) is is_held


def test_what_starts_add_is_found_beside_the_scatter_of_pairs_and_bounded_in_most_cases() -> None:
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        arms = [
            [
                (start, added + rng.normal(0, 0.01))
                for start, added in enumerate(rng.normal(0, 0.02, 8))
                for _ in range(2)
            ]
            for _ in range(2)
        ]
        found.append(spread_of(arms))
    kept = [each for each in found if each is not None]
    assert float(np.mean([each.spread**2 for each in kept])) ** 0.5 == pytest.approx(0.02, rel=0.1)
    assert np.mean([each.most > 0.02 for each in kept]) > 0.95
    assert {each.starts for each in kept} == {16}
    assert Starts(spread=0.01, most=0.02, starts=16).prior == 0.01
    assert (
        Starts(spread=0.0, most=0.02, starts=16).prior
        == Starts(spread=0.01, most=0.02, starts=4).prior
        == 0.02
    )
    assert spread_of([[(0, 1.0), (0, 1.1)]]) is None


@pytest.mark.slow
@pytest.mark.loopback
def test_a_command_beyond_its_time_hears_ctrl_c_and_what_it_leaves_behind_is_ended(
    tmp_path: Path,
) -> None:
    late = (
        "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "sys.stdin.read(); import time; time.sleep(600)"
    )
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(HOUSE)!r})
from benchmarks.gpu import run
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
print(run.patient((sys.executable, "-c", {late!r}), 2, seconds=3.0, grace_s=20), len(run.children()))
run.end_orphans(but=set())
print(run.children())
"""
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert said.stdout.splitlines() == ["None 1", "[]"], said.stderr
    with (tmp_path / "out").open("w") as out:
        assert (
            patient(
                (sys.executable, "-c", "raise SystemExit(3)"), out.fileno(), seconds=60, grace_s=1
            )
            == 3
        )


def test_a_folder_that_is_too_large_loses_its_journals_and_never_its_databases(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.journal" / "run").mkdir(parents=True)
    (tmp_path / "m.journal" / "run" / "leg001.journal").write_bytes(bytes(2 << 20))
    (tmp_path / "m.duckdb").write_bytes(os.urandom(3 << 20))
    (tmp_path / "logs" / "m").mkdir(parents=True)
    (tmp_path / "logs" / "m" / "bf16.log").write_bytes(b"x" * (1 << 20))
    assert trim(tmp_path, 60) == pytest.approx(5.2, abs=0.1)
    assert trim(tmp_path, 4) == pytest.approx(3.2, abs=0.1)
    parts = pack(tmp_path, tmp_path.with_name("packed"), part=1 << 20)
    assert len(parts) == 4
    whole = tmp_path.with_name("whole")
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(whole) as archive:
        assert archive.getmember(f"{tmp_path.name}/m.duckdb").size == 3 << 20
    assert size_mb(tmp_path) == pytest.approx(3.2, abs=0.1)


def house(folder: Path) -> Path:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "published.yaml").write_text(
        (HOUSE / "benchmarks" / "published.yaml").read_text(encoding="utf-8")
    )
    return folder


def verb(line: str) -> None:
    subprocess.run([AGENTLOAD, *line.split(), "--quiet"], check=True, stdout=subprocess.DEVNULL)


def tried(at: Site, place: str) -> None:
    line = {
        "phase": "profile",
        "model": at.model,
        "place": place,
        "step": "steps",
        "ended": "done",
        "seconds": 1.0,
        "at": "2026-01-02T03:04:05Z",
    }
    (at.folder / "done.jsonl").write_text(json.dumps(line) + "\n")


@pytest.mark.slow
def test_what_came_back_becomes_reports_a_profile_rows_and_a_page_that_compares_it_with_the_prediction(
    tmp_path: Path,
) -> None:
    at, root = site(tmp_path), house(tmp_path / "house")
    at.folder.mkdir()
    make(KIT, at, agentload=AGENTLOAD)
    common = f"--profile {plan.profile_path(at)} --db {plan.database(at)}"
    verb(
        f"simulate {at.work / 'llama-8b-steps.jsonl'} --pairs "
        f"{KIT['places']['gpu']['values']['plays']} --run-id profile {common}"
    )
    verb(
        "simulate chat --sessions 2 --max-context 16k --windows 8 --duration 30 --pairs 4 "
        f"--wait-cap user=5 --run-id chat {common}"
    )
    tried(at, "gpu")
    page = digest(at.folder, root)
    assert RANDOM in page
    assert (
        (root / "reports" / "gpu" / "llama-8b-chat" / "decision.md")
        .read_text(encoding="utf-8")
        .startswith(f"> {RANDOM}")
    )
    assert hashlib.sha256(plan.database(at).read_bytes()).hexdigest() in page
    assert "llama-8b, chat, fp8, turn |" in page
    assert re.search(r"Of \d+ predicted changes 3 were measured. The intervals of 0 overlap", page)
    assert "predicted for" not in page  # it was the card of the prediction
    assert (root / "reports" / "gpu" / "llama-8b-chat" / "run.tar.zst").exists()
    measured = read(str(root / "profiles" / "llama-3.1-8b-h100-measured.yaml"))
    known = profiled(KIT, "llama-8b")
    for own, each in zip(measured.arms, known.arms, strict=True):
        assert own.step is not None
        assert each.step is not None
        assert own.step.decode_ms == pytest.approx(each.step.decode_ms, rel=0.03)


def test_a_prediction_of_another_card_is_named_as_one() -> None:
    found = [
        {"model": "llama-8b", "report": {"decision": {"gpu": gpu}}}
        for gpu in ("H100-SXM", "H200-SXM")
    ]
    (said,) = cards([*found, {"model": "llama-8b", "report": None}])
    assert said.startswith("llama-8b: predicted for H100-SXM, measured on H200-SXM")


def test_a_rehearsal_adds_no_profile_and_no_figure_and_says_what_it_is(tmp_path: Path) -> None:
    at, root = site(tmp_path, "emulated"), house(tmp_path / "house")
    at.folder.mkdir()
    tried(at, "emulated")
    before = (root / "benchmarks" / "published.yaml").read_text(encoding="utf-8")
    assert "a rehearsal (emulated), whose figures say nothing of a GPU" in digest(at.folder, root)
    assert not (root / "profiles").exists()
    assert (root / "benchmarks" / "published.yaml").read_text(encoding="utf-8") == before


def test_lines_of_a_sweep_become_rows_that_the_list_of_figures_takes_once(tmp_path: Path) -> None:
    line = {
        "arm": "fp8",
        "slope_ms_per_token": {"value": 2.371e-5},
        "intercept_ms": {"value": 6.581},
    }
    rows = list(figures({"decision": {"itl": [line]}}, "some-measured"))
    path = house(tmp_path) / "benchmarks" / "published.yaml"
    for _ in range(2):
        publish(path, rows, "2026-01-02")
    added = published(path)[len(published()) :]
    assert [(each.what, each.profile, each.arm, each.value, each.source) for each in added] == [
        ("intercept", "some-measured", "fp8", 6.581, "here-2026-01-02"),
        ("slope", "some-measured", "fp8", 2.371e-5, "here-2026-01-02"),
    ]


def phase(name: str, at: Site, *, minutes: float, code: int = 0) -> dict[str, str]:
    """Run a phase as it is typed; return how each of its steps ended last.

    It must not take longer than it may. A client that does not keep up goes on:
    what a rehearsal measures says nothing.
    """
    program = at.folder.with_name("agentload")
    program.write_text("\n".join((f"#!{PATIENT[0]}", PATIENT[-1])), encoding="utf-8")
    program.chmod(0o755)
    command = [
        sys.executable,
        "-c",
        f"from benchmarks.gpu import run; run.AGENTLOAD = {str(program)!r}; run.main()",
        name,
        "--place",
        at.place,
        "--model",
        at.model,
        "--vllm",
        at.vllm,
    ]
    command += ["--folder", str(at.folder), "--work", str(at.work), "--minutes", str(minutes)]
    began_s = time.monotonic()
    env = {**os.environ, "AGENTLOAD_CLIENT_CHECK": "0"}
    done = subprocess.run(
        command,
        check=False,
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=60 * minutes + 60,
        env=env,
    )
    assert done.returncode == code, (
        done.stdout
        + done.stderr
        + "".join(each.read_text()[-2000:] for each in (at.folder / "said").glob(f"*-{name}-*"))
    )
    assert time.monotonic() - began_s < 60 * minutes + STARTING_S
    lines = [json.loads(line) for line in (at.folder / "done.jsonl").read_text().splitlines()]
    return {
        line["step"]: line["ended"]
        for line in lines
        if line["phase"] == name and line["step"] != "start"
    }


@pytest.mark.slow
@pytest.mark.loopback
def test_the_phases_run_whole_on_emulated_servers_and_a_decision_goes_on_where_it_was_stopped(
    tmp_path: Path,
) -> None:
    at, root = site(tmp_path, "emulated"), house(tmp_path / "house")
    assert phase("look", at, minutes=3, code=1)["client"] in {
        "done",
        "failed",
        "stopped",
    }  # no driver here, and maybe no fit client
    assert phase("profile", at, minutes=5) == {
        "facts": "done",
        "steps": "done",
        "lengths": "done",
        "probe": "done",
    }
    assert phase("chat", at, minutes=2) == {"chat": "stopped"}
    blocks = "SELECT leg, arm, round, started_ns FROM blocks WHERE run_id = 'chat' ORDER BY ALL"
    with reading(plan.database(at)) as connection:
        before = set(connection.execute(blocks).fetchall())
    assert phase("chat", at, minutes=7) == {"chat": "done"}
    with reading(plan.database(at)) as connection:
        after = set(connection.execute(blocks).fetchall())
        legs = connection.execute("SELECT count(*) FROM legs WHERE run_id = 'chat'").fetchone()
    assert before
    assert before <= after
    assert legs is not None
    assert legs[0] > 1
    assert phase("edge", at, minutes=5) == {"far": "done", "full": "done"}
    assert phase("restarts", at, minutes=5) == {"restarts": "done"}
    assert phase("client", at, minutes=3) == {"thousand": "done", "thousands": "done"}
    page = digest(at.folder, root)
    assert "| llama-8b | [chat](llama-8b-chat/decision.md) |" in page
    assert size_mb(at.folder) < 60


@pytest.mark.vllm
@pytest.mark.loopback
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_phase_runs_on_a_real_vllm_whose_weights_are_dummies(tmp_path: Path) -> None:
    at = site(tmp_path, "cpu", vllm=str(executable()))
    assert phase("profile", at, minutes=9)["steps"] == "done"
    assert "a rehearsal (cpu)" in digest(at.folder, house(tmp_path / "house"))
