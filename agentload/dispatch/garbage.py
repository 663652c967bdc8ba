"""Recognise text that no healthy model writes.

A broken cache or a NaN shows as one character repeated without end, or as noise.
"""

import re

# With forced lengths even healthy models repeat whole sentences and
# blank lines, so only what they never do counts as garbage.
# Repetitions of a unit, which must fill the answer from its first character to its last
REPEATS = 16
UNIT_CHARS = 8
# Repetitions of one character up to the answer's end: logits that
# became NaN decode to the same token for ever, often "!".
RUN_CHARS = 128
# Share of control and replacement characters; random byte-level tokens stay below it
NOISE_SHARE = 0.3
NOISE_CHARS = 64  # a share of fewer characters proves nothing
# Characters looked at from the start; a model that breaks later shows it at the end
LOOKED_AT = 1 << 18
_NOISE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


def garbage(text: str) -> str | None:
    """Return what is wrong with an answer's text; None when nothing is."""
    if not text:
        return None
    if not text[-1].isspace() and text.endswith(text[-1] * RUN_CHARS):
        run = f"repetition: ends with {RUN_CHARS} and more of {text[-1]!r}"
    else:
        run = None
    text = text[:LOOKED_AT]
    unit = _unit(text)
    if unit is not None:
        return f"repetition: nothing but {unit!r}"
    if run is not None:
        return run
    if len(text) >= NOISE_CHARS and (noise := len(_NOISE.findall(text))) >= NOISE_SHARE * len(text):
        return f"unprintable: {noise} of {len(text)} characters"
    return None


def _unit(text: str) -> str | None:
    for size in range(1, UNIT_CHARS + 1):
        unit = text[:size]
        if (
            not unit.isspace()
            and text.startswith(unit * REPEATS)
            and text == (unit * (len(text) // size + 1))[: len(text)]
        ):
            return unit
    return None
