"""Encode the images of prompts: what that takes, and which encodings a server still holds.

As in vLLM, an image is encoded in the first step whose chunk reaches into it, before the language
model reads that chunk. What the prefix cache holds is not read and so not encoded. Encodings
are shared by all calls and kept until others need their room: as many tokens
of images as a step may hold, vLLM's default.
"""

from typing import Final

from agentload.emulator.calls import PS_PER_NS, Runs
from agentload.model.profile import ArmProfile

IMAGE: Final = "image\x1f"
"""Beginning of the identity of a run that is an image."""
_PS_PER_MS: Final = PS_PER_NS * 1_000_000


class Encoder:
    """Encode images on one server; tell how long that takes."""

    def __init__(self, arm: ArmProfile) -> None:
        self._costs = arm.encoder
        self._room = arm.server.max_num_batched_tokens
        self._kept: dict[str, int] = {}  # tokens by identity; the image used last comes last
        self._size = 0

    def encode_ps(self, content: Runs, start: int, end: int) -> int:
        """Encode the images that tokens *start* to *end* of a context reach; return the time."""
        if self._costs is None:
            return 0
        taken_ps = 0
        at = 0
        for identity, tokens in content:
            if at >= end:
                break
            at += tokens
            is_reached = at > start and identity.startswith(IMAGE)
            if is_reached and not self._has(identity, tokens):
                taken_ps += round(self._costs.image_ms(tokens) * _PS_PER_MS)
        return taken_ps

    def _has(self, identity: str, tokens: int) -> bool:
        """Tell whether an image's encoding is held; from here on it is, as the one used last."""
        kept = self._kept
        is_held = kept.pop(identity, None) is not None
        kept[identity] = tokens
        if not is_held:
            self._size += tokens
        while self._size > self._room and len(kept) > 1:
            self._size -= kept.pop(next(iter(kept)))
        return is_held
