from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import duckdb
import pytest
import yaml

from agentload.ask.plain import Streamed
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import GateError
from agentload.evidence.gather import gather
from agentload.run import isolation
from agentload.run.isolation import Cell, Combination, combinations
from agentload.store.database import reading
from tests.cli.verbs import agentload


def test_every_arm_is_tried_without_and_with_each_feature_and_the_safest_comes_first() -> None:
    arms = [
        Endpoint(name=name, url="http://x/v1", launch=Launch(command=("serve", name)))
        for name in ("bf16", "fp8")
    ]
    plain = combinations(arms, graphs=False)
    assert [(each.arm.name, each.prefix_caching, each.cuda_graphs) for each in plain] == [
        ("bf16", False, None),
        ("bf16", True, None),
        ("fp8", False, None),
        ("fp8", True, None),
    ]
    tried = combinations(arms, graphs=True)
    assert [each.name for each in tried[:4]] == [
        "bf16-prefix-off-eager",
        "bf16-prefix-on-eager",
        "bf16-prefix-off-graphs",
        "bf16-prefix-on-graphs",
    ]
    launched = [each.endpoint().launch for each in tried[-2:]]
    assert [each.command for each in launched if each] == [
        ("serve", "fp8", "--no-enable-prefix-caching", "--no-enforce-eager"),
        ("serve", "fp8", "--enable-prefix-caching", "--no-enforce-eager"),
    ]


def test_answers_are_held_against_those_of_the_first_combination_that_gave_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = Streamed(
        text="so", ttft_ms=None, prompt_tokens=None, cached_tokens=None, token_ids=(7,)
    )
    said = iter([None, (None, None), (None, answer), (answer, answer)])
    bases: list[object] = []

    def tried(
        each: Combination, base: object, **_: object
    ) -> tuple[Cell, tuple[Streamed | None, ...] | None]:
        bases.append(base)
        return Cell(
            arm=each.arm.name, prefix_caching=each.prefix_caching, cuda_graphs=None, outcome="ok"
        ), next(said)

    monkeypatch.setattr(isolation, "_tried", tried)
    arms = [
        Endpoint(name=name, url="http://x/v1", launch=Launch(command=("serve",)))
        for name in ("bf16", "fp8")
    ]
    list(
        isolation.isolated(
            combinations(arms, graphs=False),
            tokens=1,
            prompts=2,
            logs=tmp_path,
            start_s=1,
            told=lambda _: None,
        )
    )
    assert bases == [None, None, None, (None, answer)]


# The server of an arm; the flags that the matrix adds are the script's arguments.
SERVER = """
case "{arm} $*" in
  *broken*) echo "no kernel for this"; exit 3;;
  fp8*--enable-prefix-caching*) faults="--faults {crash}";;
esac
exec {agentload} emulate llama-3.1-8b-h100/{arm} --port {port} --speed 50 $faults
"""


@pytest.mark.slow
@pytest.mark.loopback
def test_a_combination_that_crashes_is_told_from_one_that_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    crash = tmp_path / "crash.yaml"
    crash.write_text("faults: [{kind: crash, after_tokens: 0, only: 2}]")
    program = Path(sys.executable).with_name("agentload")
    arms = {
        arm: {
            "url": f"http://127.0.0.1:{port}/v1",
            "launch": [
                "sh",
                "-c",
                SERVER.format(arm=arm, crash=crash, agentload=program, port=port),
                "serve",
            ],
        }
        for arm in ("bf16", "fp8", "broken")
    }
    file, database = tmp_path / "endpoints.yaml", tmp_path / "m.duckdb"
    file.write_text(yaml.safe_dump({"arms": arms}, sort_keys=False))
    agentload(
        "sweep --endpoints emulated:llama-3.1-8b-h100/bf16+fp8 --contexts 512,1k --pairs 1 "
        "--output 4 --no-noise",
        db=database,
    )
    with duckdb.connect(str(database), read_only=True) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    capsys.readouterr()
    with pytest.raises(GateError, match="3 of 6 combinations"):
        agentload(
            "probe --matrix --prompts 2 --gate --json",
            endpoints=file,
            into=run,
            db=database,
            logs=tmp_path / "logs",
        )
    found = json.loads(capsys.readouterr().out)
    assert [(each["arm"], each["prefix_caching"], each["outcome"]) for each in found] == [
        ("bf16", False, "ok"),
        ("bf16", True, "ok"),
        ("fp8", False, "ok"),
        ("fp8", True, "crash"),
        ("broken", False, "no start"),
        ("broken", True, "no start"),
    ]
    assert [(each["agreed"], each["prompts"]) for each in found[:3]] == [(2, 2)] * 3
    assert [each["exit_code"] for each in found[-2:]] == [3, 3]
    assert found[-1]["detail"] == "no kernel for this"
    assert found[1]["reuse"]["counted_hits"] == 2032
    with reading(database) as connection:
        evidence = gather(connection, run)
    assert [
        (each.arm, each.prefix_caching, each.outcome)
        for each in evidence.probes
        if each.outcome != "ok"
    ] == [("fp8", True, "crash")]
