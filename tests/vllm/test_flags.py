"""Flags of our commands and settings of a matrix, held against
the sources of the vLLM that is tried; nothing is started.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentload.endpoints.commands import COMMON, Pins
from agentload.kvmath.pool import TRIED
from agentload.matrix.arms import known_settings
from agentload.model.kv import RECIPES
from tests.vllm.serving import executable, missing

pytestmark = [pytest.mark.vllm, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def package() -> Path:
    (found,) = executable().parents[1].glob("lib/python3*/site-packages/vllm")
    return found


def test_this_is_the_release_that_commands_and_images_name(package: Path) -> None:
    said = re.search(
        r"__version__ = version = '([\d.]+)", (package / "_version.py").read_text(encoding="utf-8")
    )
    assert said is not None
    assert said[1] == TRIED, (
        "say in kvmath/pool.py what is tried now, and list its options in vllm_settings.txt"
    )


def test_every_flag_and_setting_of_ours_is_one_that_vllm_takes(package: Path) -> None:
    files = (package / "engine" / "arg_utils.py", *(package / "entrypoints").rglob("*.py"))
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files)
    # Options of the engine are spelled out; those of the API server are the fields of a dataclass.
    taken = {
        *re.findall(r"[\"']--([a-z0-9-]+)[\"']", sources),
        *(each.replace("_", "-") for each in re.findall(r"^    (\w+):", sources, re.MULTILINE)),
    }
    pins = Pins(max_model_len=1, batched_tokens=1, kv_memory="1G", revision="main").words(
        is_calibrated=False
    )
    flags = {
        word[2:]
        for word in (*COMMON, *pins, *(flag for recipe in RECIPES for flag in recipe.flags))
        if word.startswith("--")
    }
    assert flags > {"kv-cache-dtype", "revision"}
    assert (known_settings() | flags | {"served-model-name", "port"}) - taken == set()
