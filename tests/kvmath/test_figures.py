from __future__ import annotations

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.figures import shape_of
from agentload.model.profile import LayerGroup


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("layers=32,kv_heads=8,head_dim=128", (LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128),)),
        (
            "layers=24, kv_heads=8, head_dim=64, window=128, windowed=12",
            (
                LayerGroup(kind="sliding", layers=12, kv_heads=8, head_dim=64, window=128),
                LayerGroup(kind="full", layers=12, kv_heads=8, head_dim=64),
            ),
        ),
        ("layers=61,latent=576", (LayerGroup(kind="mla", layers=61, head_dim=576),)),
    ],
)
def test_figures_become_groups_of_layers(text: str, groups: tuple[LayerGroup, ...]) -> None:
    assert shape_of(text, max_len=8192).groups == groups


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers=32,kv_heads=8", "has no 'head_dim'"),
        ("layers=32,heads=8", "'heads' is no figure of a model"),
        ("layers=x", "'layers' must be a whole number"),
        ("layers=4,kv_heads=1,head_dim=64,windowed=2", "of 'window' tokens"),
        ("layers=4,kv_heads=1,head_dim=64,window=128,windowed=4", "fewer than all"),
    ],
)
def test_figures_that_say_no_model_are_refused(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        shape_of(text, max_len=8192)
