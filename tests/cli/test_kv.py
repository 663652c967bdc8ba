from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.cli.kv import kv
from agentload.errors import ProfileError, UsageError

CONFIG = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a model's name whose config lies in a cache of its own."""
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return "org/tiny"


def test_a_cached_model_is_found_by_its_name_and_sized(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kv(model, kv_memory="1GiB", batched_tokens=2048, block=128, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["memory_bytes"], printed["max_model_len"]) == (1 << 30, 8192)
    assert [(each["arm"], each["pool_tokens"]) for each in printed["sizes"]] == [
        ("bf16", 524_288),
        ("fp8", 1_048_576),
    ]
    kv(model, gpu_memory=4.0, weights=0.68, overhead=2.0, batched_tokens=2048, block=128)
    assert "524,288" in capsys.readouterr().out


def test_a_model_may_be_given_by_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    kv(
        shape="layers=4,kv_heads=2,head_dim=64",
        max_model_len=8192,
        kv_memory="1G",
        batched_tokens=2048,
        block=128,
        json=True,
    )
    printed = json.loads(capsys.readouterr().out)
    assert [each["pool_tokens"] for each in printed["sizes"]] == [524_288, 1_048_576]
    assert printed["layers"] == [
        {"kind": "full", "layers": 4, "token_bytes": [512, 256], "page_bytes": [65_536, 32_768]}
    ]
    with pytest.raises(UsageError, match="how long requests may be"):
        kv(shape="layers=4,kv_heads=2,head_dim=64", kv_memory="1G")
    with pytest.raises(UsageError, match="name a model, or what it is made of"):
        kv(kv_memory="1G")


@pytest.mark.parametrize(
    ("gpu", "step"), [("L4", 2048), ("H100", 8192), ("B200", 16384), (None, 8192)]
)
def test_a_step_is_as_large_as_on_that_gpu(
    model: str, capsys: pytest.CaptureFixture[str], gpu: str | None, step: int
) -> None:
    kv(model, gpu=gpu, kv_memory="1G", rules=False, json=True)
    assert json.loads(capsys.readouterr().out)["batched_tokens"] == step
    kv(model, gpu=gpu, kv_memory="1G", rules=False)
    head = capsys.readouterr().out.splitlines()[0]
    assert f"read {step:,} at a time" in head
    assert ("as on most GPUs" in head) == (gpu is None)


def test_a_pool_of_unknown_size_and_a_model_that_is_not_here_are_told(model: str) -> None:
    with pytest.raises(UsageError, match="not known"):
        kv(model)
    with pytest.raises(UsageError, match="'much' is no size"):
        kv(model, kv_memory="much")
    with pytest.raises(ProfileError, match=r"no config\.json of 'org/other' here"):
        kv("org/other", kv_memory="1G")
    with pytest.raises(ProfileError, match="leave nothing"):
        kv(model, gpu_memory=4.0, weights=8.0)


def test_published_rules_stand_below_the_sizes_and_in_json(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kv(model, gpu="H100", weights=1.0, batched_tokens=2048, rules=True)
    printed = capsys.readouterr().out
    assert (
        "\npublished rule           today     verdict and what it means for this model\n" in printed
    )
    assert "(guide 2):" in printed
    assert printed.endswith("guide: Rafay Token Factory, KV cache best practices\n")
    kv(model, kv_memory="1G", json=True, rules=True)
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert rules[0].keys() == {"rule", "published", "source", "today", "because", "here"}
    kv(model, kv_memory="1G")
    assert "guide" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="'Voodoo' is not known"):
        kv(model, gpu="Voodoo", weights=1.0)
