from __future__ import annotations

import yaml

from agentload.endpoints.commands import explained, planned
from agentload.endpoints.manifests import compose, kubernetes
from agentload.kvmath import practice


def test_a_model_without_windows_gets_no_arm_that_skips_them() -> None:
    assert [arm.name for arm in planned("M", has_windows=False)] == ["bf16", "fp8", "bf16-same-backend"]
    assert [arm.name for arm in planned("M")] == ["bf16", "fp8", "fp8-skip-sw", "bf16-same-backend"]


def test_each_command_is_pinned_and_stands_below_what_it_is_for() -> None:
    text = explained(planned("org/M", has_windows=False, length=8192))
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("# fp8:"))
    assert lines[at + 1] == ("vllm serve org/M --port 8001 --max-model-len 8192 --kv-cache-dtype fp8 --enable-prompt-tokens-details")


def test_a_compose_file_has_a_service_an_arm_with_the_arguments_after_serve() -> None:
    services = yaml.safe_load(compose(planned("M", has_windows=False)))["services"]
    assert list(services) == ["bf16", "fp8", "bf16-same-backend"]
    assert services["fp8"]["command"] == ["M", "--port", "8001", "--kv-cache-dtype", "fp8", "--enable-prompt-tokens-details"]
    # The release whose flags and defaults the rules of `kv` tell of.
    assert services["fp8"]["image"] == f"vllm/vllm-openai:v{practice.CURRENT.removeprefix('vLLM ')}" == "vllm/vllm-openai:v0.33.0"


def test_kubernetes_manifests_wait_for_health_and_give_each_arm_its_gpu() -> None:
    documents = list(yaml.safe_load_all(kubernetes(planned("M", has_windows=False)[:1])))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert documents[1]["spec"]["selector"] == documents[0]["spec"]["selector"]["matchLabels"]
