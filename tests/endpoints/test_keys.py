"""What is recognised as a key, and what only looks like one."""

import shlex

import pytest

from agentload.endpoints.keys import holds_key, keys_in_body, keys_in_environment, keys_in_headers


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
