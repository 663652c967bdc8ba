from __future__ import annotations

import math
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.endpoints.keys import holds_key
from agentload.errors import UsageError
from agentload.kvmath.pool import TRIED
from agentload.matrix.arms import (
    OURS,
    check_settings,
    expectations,
    gpus,
    grid,
    known_settings,
    words,
)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"enforce-eager": True}, ("--enforce-eager",)),
        ({"enable-prefix-caching": False}, ("--no-enable-prefix-caching",)),
        ({"gpu-memory-utilization": 0.9}, ("--gpu-memory-utilization", "0.9")),
        (
            {"kv-cache-dtype-skip-layers": ["sliding_window", "0"]},
            ("--kv-cache-dtype-skip-layers", "sliding_window", "0"),
        ),
        (
            {"speculative-config": {"method": "ngram"}},
            ("--speculative-config", '{"method": "ngram"}'),
        ),
        ({"cudagraph-capture-sizes": []}, ()),
        ({"args": ["--brand-new", 1]}, ("--brand-new", "1")),
    ],
)
def test_a_setting_is_the_words_of_its_flag(
    settings: dict[str, object], said: tuple[str, ...]
) -> None:
    assert words(settings) == said


def test_names_may_be_written_as_in_a_shell_or_in_python() -> None:
    assert check_settings({"--max-num-seqs": 8, "block_size": 16}, "x") == {
        "max-num-seqs": 8,
        "block-size": 16,
    }


@pytest.mark.parametrize(
    ("settings", "error", "hint"),
    [
        ({"max-num-seq": 8}, "x: vLLM has no setting 'max-num-seq'", "did you mean max-num-seqs"),
        ({"quux": 8}, "x: vLLM has no setting 'quux'", "args:"),
        (
            {"--rope-scaling": '{"rope_type": "yarn", "factor": 4.0}'},
            "x: vLLM has no setting '--rope-scaling'",
            "did you mean hf-overrides",
        ),
        ({"port": 8}, "x: 'port' is set by the matrix", "server"),
        ({"max-num-seqs": None}, "x: 'max-num-seqs' has no value", "true"),
    ],
)
def test_a_setting_that_vllm_does_not_take_is_refused_with_the_nearest(
    settings: dict[str, object], error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_settings(settings, "x")
    assert caught.value.message == error
    assert hint in (caught.value.hint or "")


def test_the_list_of_settings_is_that_of_the_release_that_was_tried() -> None:
    listed = resources.files("agentload.matrix") / "vllm_settings.txt"
    assert listed.read_text(encoding="utf-8").splitlines()[0].split(":")[0] == f"# vllm {TRIED}"
    assert not [name for name in known_settings() if " " in name or "#" in name]


def test_a_server_must_say_what_it_was_set_to() -> None:
    settings = {
        "kv-cache-dtype": "fp8",
        "max-model-len": 4096,
        "enable-prefix-caching": False,
        "max-num-seqs": 8,
    }
    assert expectations(settings) == {
        "kv_cache_dtype": "fp8",
        "max_model_len": 4096,
        "prefix_caching": False,
    }


@pytest.mark.parametrize("length", ["64k", "auto", -1, True])
def test_a_length_that_a_server_says_in_other_words_is_not_held_against_it(length: object) -> None:
    assert expectations({"max-model-len": length, "kv-cache-dtype": "fp8"}) == {
        "kv_cache_dtype": "fp8"
    }


def test_a_server_is_split_over_the_gpus_of_all_its_parallel_sizes() -> None:
    assert (
        gpus({"tensor-parallel-size": 2, "pipeline-parallel-size": 2, "data-parallel-size": 3})
        == 12
    )
    assert gpus({"max-num-seqs": 8}) == 1


def test_the_arms_of_a_grid_are_named_after_its_settings() -> None:
    given = {
        "max-num-seqs": [64, 256],
        "enable-chunked-prefill": [True, False],
        "gpu-memory-utilization": [0.9],
    }
    assert [name for name, _ in grid(given, "x")] == [
        "seqs64-chunked-on-mem0.9",
        "seqs64-chunked-off-mem0.9",
        "seqs256-chunked-on-mem0.9",
        "seqs256-chunked-off-mem0.9",
    ]
    drafts = {"speculative-config": [{"method": "ngram", "num_speculative_tokens": 4}]}
    assert next(grid(drafts, "x"))[0] == "spec-ngram-4"


def test_a_grid_is_of_lists() -> None:
    with pytest.raises(UsageError, match=r"x\.max-num-seqs must be a list"):
        list(grid({"max-num-seqs": 64}, "x"))


VALUES = st.lists(
    st.one_of(st.integers(1, 9999), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda value: (type(value), value),
)


NAMES = st.sampled_from(
    sorted(name for name in known_settings() - OURS if not holds_key((f"--{name}", "1")))
)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_a_grid_has_every_combination_once_under_a_name_of_its_own(
    values: dict[str, list[object]],
) -> None:
    made = list(grid(values, "x"))
    assert len(made) == len({name for name, _ in made}) == math.prod(map(len, values.values()))
    assert all(
        settings.keys() == values.keys() and all(settings[name] in values[name] for name in values)
        for _, settings in made
    )
