"""What a server was started with, from the line that vLLM 0.32.0
writes at its start and from commands as people write them.
"""

from __future__ import annotations

import pytest

from agentload.endpoints.arguments import arguments
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
