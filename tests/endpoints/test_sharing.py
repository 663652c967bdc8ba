from __future__ import annotations

import pytest

from agentload.endpoints import sharing
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.launch import launched
from agentload.endpoints.sharing import check_apart
from agentload.errors import LaunchError


def arm(name: str, *flags: str, gpus: str | None = None, before: tuple[str, ...] = ("vllm",)) -> Endpoint:
    env = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
    return Endpoint(name=name, url="http://127.0.0.1:9/v1", launch=Launch(command=(*before, "serve", "M", *flags), env=env))


@pytest.fixture(autouse=True)
def machine_with_gpus(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "DEVICES", (tmp_path_factory.getbasetemp(),))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (arm("a"), arm("b"), "the first GPU"),
        (arm("a", gpus="0,1"), arm("b", gpus="1, 2"), "GPU 1"),
        (arm("a", gpus="0"), arm("b", before=("env", "CUDA_VISIBLE_DEVICES=0", "/opt/bin/vllm")), "GPU 0"),
    ],
)
def test_servers_that_would_take_the_same_memory_are_refused_before_one_starts(
    one: Endpoint, other: Endpoint, shared: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        pytest.raises(LaunchError, match=f"'a' and 'b' would each take the memory of {shared}$"),
        launched([one, other], logs=tmp_path_factory.getbasetemp()),
    ):
        pass


@pytest.mark.parametrize(
    "arms",
    [
        [arm("a", gpus="0"), arm("b", gpus="1")],
        [arm("a"), arm("b", "--gpu-memory-utilization=0.4")],
        [arm("a", "--kv_cache_memory_bytes", "4G"), arm("b")],
        [arm("a"), arm("b", before=("transformers",))],
        [arm("a", before=("ssh", "left", "vllm")), arm("b", before=("ssh", "right", "vllm"))],
        [arm("a"), Endpoint(name="b", url="http://127.0.0.1:9/v1")],
    ],
)
def test_servers_that_are_apart_bounded_or_of_another_kind_are_left_alone(arms: list[Endpoint]) -> None:
    check_apart(arms)


def test_without_gpus_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "DEVICES", ())
    check_apart([arm("a"), arm("b")])
