"""Matrices to try things on."""

from __future__ import annotations

import json
from pathlib import Path

from agentload.matrix.described import Matrix, MatrixFolder
from agentload.matrix.parts import parts, traces_of
from agentload.matrix.read import parse
from agentload.matrix.steps import ModelPart

WORKLOADS = """
workloads:
  short: {generate: short_chat, options: {sessions: 6}}
  rag: {generate: short_chat, options: {sessions: 6}, scale: 2}
"""
SERVED = (
    WORKLOADS
    + """
models: {toy: {serve: org/m, windows: false}}
configs: {bf16: , fp8: {max-num-seqs: 32}}
server: {port: 8000, settings: {block-size: 16}}
measure: {pairs: 2, sessions: 2, accuracy: {items: 2, tasks: [needle]}}
"""
)


def matrix(text: str) -> Matrix:
    whole = text if "\nworkloads:" in text else WORKLOADS + text
    # As many at once as traces of a dozen sessions keep in each of six blocks.
    return parse(whole if "\nmeasure:" in whole else f"{whole}\nmeasure: {{sessions: 2}}\n", at="x")


def parts_of(text: str, folder: Path, *, only: str | None = None) -> tuple[ModelPart, ...]:
    made = matrix(text)
    return parts(made, MatrixFolder(folder), traces_of(made), only=only)


def model_folder(path: Path, *, window: int | None) -> Path:
    path.mkdir()
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
    }
    if window is not None:
        # JSON
        config |= {"sliding_window": window, "layer_types": ["sliding_attention", "full_attention"]}  # type: ignore[dict-item]
    (path / "config.json").write_text(json.dumps(config))
    return path
