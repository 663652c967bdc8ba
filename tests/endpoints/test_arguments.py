"""What a server was started with, from the line that vLLM 0.32.0
writes at its start and from commands as people write them.
"""

from __future__ import annotations

import shlex

import pytest

from agentload.endpoints.arguments import (
    arguments,
    holds_key,
    keys_in_body,
    keys_in_environment,
    keys_in_headers,
)
from agentload.endpoints.endpoint import Launch
from agentload.endpoints.identity import Identity
from agentload.telemetry.log_lines import start_up

LINE = (
    "(APIServer pid=26548) INFO 11-22 03:08:43 [api_utils.py:286] non-default args: "
    "{'model_tag': 'models/m', 'host': '127.0.0.1', "
    "'port': 18102, 'model': 'models/m', 'max_model_len': 8192, 'enforce_eager': True, "
    "'enable_prefix_caching': False, "
    "'served_model_name': ['m'], 'hf_overrides': {'model_type': 'plain'}, 'api_key': "
    "['sesame'], 'kv_cache_dtype': 'fp8', "
    "'kv_cache_dtype_skip_layers': ['sliding_window']}"
)
SAID = {
    "--model": ["models/m"],
    "--max-model-len": ["8192"],
    "--enforce-eager": [],
    "--no-enable-prefix-caching": [],
    "--served-model-name": ["m"],
    "--hf-overrides": ['{"model_type": "plain"}'],
    "--kv-cache-dtype": ["fp8"],
    "--kv-cache-dtype-skip-layers": ["sliding_window"],
}
COMMAND = (
    "ssh",
    "gpu7",
    "/opt/vllm",
    "serve",
    "org/m",
    "--port=8001",
    "--max_num_seqs",
    "64",
    "-O3",
    "--enable-sleep-mode",
)


def test_a_server_says_in_its_log_what_it_was_started_with_but_for_keys_and_its_place() -> None:
    assert (
        Identity(models=("m",), log=start_up([LINE]), launch=Launch(command=COMMAND)).facts()[
            "arguments"
        ]
        == SAID
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            COMMAND,
            {"--model": ["org/m"], "--max-num-seqs": ["64"], "-O3": [], "--enable-sleep-mode": []},
        ),
        (("agentload", "emulate", "--port", "8000"), {}),
    ],
)
def test_a_launch_command_stands_in_for_a_log_that_nobody_read(
    command: tuple[str, ...], said: dict[str, list[str]]
) -> None:
    hidden = "non-default args: {'model': 'm', 'compilation_config': CompilationConfig(level=3)}"
    assert arguments(Launch(command=command), start_up([hidden]).arguments) == said
    assert arguments(None, {}) == {}


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        ("vllm serve M --api-key s3cretword", True),
        ("vllm serve M --api-key=s3cretword", True),
        ("python -m llama_cpp.server --api_key 's3cret word'", True),
        ("server --admin-api-key s3cretword", True),
        ("vllm serve M --hf-token s3cretword --port 8000", True),
        ("sh -c 'exec vllm serve M --api-key s3cretword'", True),
        ("vllm serve M --ssl-keyfile-password s3cretword", True),
        ("vllm serve M --note sk-abcdefghijkl", True),
        ("sh -c 'exec vllm serve M --api-key $VLLM_API_KEY'", False),
        ("sh -c 'exec vllm serve M --api-key \"$VLLM_API_KEY\"'", False),
        ("vllm serve M --hf-token --port 8000", False),
        ("vllm serve M --ssl-keyfile me.key --max-num-batched-tokens 2048 --tokenizer T", False),
        ("vllm serve hf-token", False),
    ],
)
def test_a_command_gives_a_key_away_however_it_is_spelt(command: str, *, is_found: bool) -> None:
    assert holds_key(shlex.split(command)) == is_found


def test_a_variable_is_known_by_its_name_or_its_value() -> None:
    variables = {
        "VLLM_API_KEY": "s3cretword",
        "HF_TOKEN": "s3cretword",
        "DB_PASSWORD": "s3cretword",
        "NOTE": "Bearer abcdefghijkl",
        "CUDA_VISIBLE_DEVICES": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "MONKEY": "s3cretword",
        "VLLM_API_KEY_FILE": "/run/key",
    }
    assert list(keys_in_environment(variables)) == [
        "VLLM_API_KEY",
        "HF_TOKEN",
        "DB_PASSWORD",
        "NOTE",
    ]


def test_a_header_is_known_by_its_name_or_its_value_but_a_router_may_have_the_session() -> None:
    headers = {
        "Authorization": "x",
        "X-Auth-Token": "x",
        "X-Team": "sk-abcdefghijkl",
        "X-Routing-Key": "{session}",
        "X-Group": "x",
    }
    assert list(keys_in_headers(headers)) == ["Authorization", "X-Auth-Token", "X-Team"]


def test_a_body_is_searched_to_its_ground() -> None:
    body = {
        "user_config": {
            "model_list": [{"litellm_params": {"api_key": "s3cretword", "model": "m"}}]
        },
        "metadata": {"note": "Bearer abcdefghijkl"},
        "aws_secret_access_key": "s3cretword",
        "prompt_cache_key": "agents",
        "stop_token_ids": [7],
        "logit_bias": {"50256": -100},
    }
    assert list(keys_in_body(body)) == [
        "user_config.model_list.litellm_params.api_key",
        "metadata.note",
        "aws_secret_access_key",
    ]
