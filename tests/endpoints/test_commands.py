from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agentload.endpoints.commands import Pins, explanation, launch_plan
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import UsageError
from agentload.kvmath.pool import TRIED

PINS = Pins(max_model_len=8192, batched_tokens=2048, kv_memory="40G", revision="abc")
PINNED = "--max-model-len 8192 --max-num-batched-tokens 2048 --kv-cache-memory-bytes 40G"


def commands(text: str) -> dict[str, str]:
    """Return each arm's command by what stands above it."""
    lines = text.splitlines()
    return {
        head[2:].partition(":")[0]: line
        for head, line in pairwise(lines)
        if line.startswith("vllm ")
    }


def test_a_model_without_windows_gets_no_arm_that_skips_them() -> None:
    assert [arm.name for arm in launch_plan("M", has_windows=False)] == [
        "bf16",
        "fp8",
        "fp8-calibrated",
        "bf16-same-backend",
    ]
    assert [arm.name for arm in launch_plan("M")] == [
        "bf16",
        "fp8",
        "fp8-skip-sw",
        "fp8-calibrated",
        "bf16-same-backend",
    ]


def test_the_arms_that_are_named_are_made_and_no_others() -> None:
    arms = launch_plan("M", has_windows=False, arms=["fp8-drafts", "fp8-e5m2", "fp8-weights"])
    assert [arm.name for arm in arms] == ["fp8-drafts", "fp8-e5m2", "fp8-weights"]
    assert [arm.url for arm in arms] == [f"http://127.0.0.1:{8000 + at}/v1" for at in range(3)]
    said = {arm.name: arm.launch.command[5:] for arm in arms if arm.launch is not None}
    assert said["fp8-e5m2"][:2] == ("--kv-cache-dtype", "fp8_e5m2")
    assert said["fp8-weights"][2:4] == ("--quantization", "fp8")
    flag, drafts = said["fp8-drafts"][2:4]
    assert flag == "--speculative-config"
    assert json.loads(drafts)["num_speculative_tokens"] == 4
    with pytest.raises(UsageError, match="no well-known arm 'fp9'"):
        launch_plan("M", arms=["fp9"])


def test_each_command_is_pinned_and_stands_below_what_it_is_for() -> None:
    text = explanation(launch_plan("org/M", has_windows=False, pins=PINS))
    assert f"pip install vllm=={TRIED}" in text.splitlines()[0]
    found = commands(text)
    assert found["fp8"] == (
        f"vllm serve org/M --port 8001 --revision abc {PINNED} --kv-cache-dtype fp8 "
        "--enable-prompt-tokens-details"
    )
    assert [PINNED in command for command in found.values()] == [True] * 4
    assert launch_plan("org/M", pins=PINS)[0].expect["max_model_len"] == 8192


def test_what_an_arms_file_says_reaches_the_program_and_no_shell(tmp_path: Path) -> None:
    env = {"A;touch hit #": "1", "B": "$(touch hit)"}
    program = (
        sys.executable,
        "-c",
        (
            "import json, os, sys; print(json.dumps([sys.argv[1:], {name: os.environ.get(name) "
            "for name in sys.argv[1:]}]))"
        ),
    )
    arm = Endpoint(
        name="a",
        url="http://127.0.0.1:8000/v1",
        model="M\ntouch hit",
        launch=Launch(command=(*program, *env), env=env),
    )
    done = subprocess.run(
        ["sh"],
        input=explanation([arm, replace(arm, name="fp8-calibrated")]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[[*env], env]] * 2
    assert list(tmp_path.iterdir()) == []


def test_calibrated_weights_are_served_under_the_models_name_and_their_making_is_told() -> None:
    text = explanation(launch_plan("org/M", pins=PINS))
    assert commands(text)["fp8-calibrated"].startswith(
        f"vllm serve ./calibrate/M-fp8-kv-tensor --port 8003 --served-model-name org/M {PINNED} "
    )
    assert (
        "agentload calibrate TRACE --model org/M && (cd calibrate && python calibrate.py)" in text
    )
