"""Draw text by key from a table of words that cost one token each in common tokenizers.

All words have four letters, so that n words are exactly 5 n bytes, and one byte of SHAKE-256 draws
one of the 256 words: drawing is a table look-up on whole arrays, and cutting to n words is slicing.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.model.trace import Key

# Checked word by word against the vocabularies themselves: each word is one token both
# after a space and at the start of a text in cl100k_base (whose merges Llama 3 extends)
# and o200k_base (gpt-oss) of js-tiktoken 1.0.21, in Qwen's of dashscope 2.0.2, in
# Tekken 240911 (Mistral), and after a space in the SentencePiece models v1 and v3 of
# mistral-common. No other tokenizer is assumed to match: `local.from_file` and a
# server's /tokenize check the table again and drop what costs more.
_TABLE: Final = """
also area arts auto away axis back ball bank base been best bill bird blue boat body bold book both
call came camp card care cars case cast cell chat chip city clip club code come cool copy core cost
crew crop data date days deal deck deep does done door down draw drop each ears edge else even ever
exit face fact fast file fill film find fire five flat flip flow food form four free from full give
gold good half hand hard have head heat held help here hold hole home host hour into item join just
keep keys kind lake land last late lead leaf left less life like line link list live load logs long
look made mail main make many maps mark math mean mind more most move much must name near need news
next nice note once ones only open over pack page paid pair park pass past path peak plan play pool
post pure push rain rank rate read real rest ride ring rise risk road rock role roll room root rows
rule safe said same save seat seed send sent sets shop show side sign site size some song soon sort
spot star step stop tail take talk task team term test text than that then they this tile time tool
town tree true turn type unit upon used uses very view wait walk wall wave ways week well went were
west what when wide will wind wire with wood word work wrap yard year zero zone
"""
WORDS: Final = tuple(_TABLE.split())
WIDTH: Final = 5
"""Bytes of a word with the white space after it."""


def table(words: Sequence[str]) -> npt.NDArray[np.void]:
    """Return the words with a space after each, to be looked up by their number.

    As bytes of any kind they are copied twice as fast as texts are.
    """
    return np.array([f"{word} ".encode() for word in words], dtype=f"S{WIDTH}").view(f"V{WIDTH}")


_BYTES: Final = table(WORDS)


def text(seed: int, key: Key, tokens: int, *, block: int = 64) -> str:
    """Return *tokens* words and a final newline.

    A shorter text of the same key is a prefix, except for the newline.
    """
    drawn = draw(seed, key, tokens, block=block)
    if not drawn:
        return ""
    return drawn[:-1].decode("ascii") + "\n"


def draw(
    seed: int, key: Key, count: int, *, block: int = 64, table: npt.NDArray[np.void] = _BYTES
) -> bytes:
    """Return `count` words with a space after each, as ASCII.

    A key `(first, blocks)` means that many blocks of `block`
    words each, so that overlapping runs share blocks.
    """
    match key:
        case str():
            return _lookup(_stream(f"{seed}\0k{key}", count), table)
        case (first, _):
            blocks = range(first, first + -(-count // block))
            return _lookup(
                b"".join(_stream(f"{seed}\0b{number}", block) for number in blocks)[:count], table
            )


def _stream(key: str, length: int) -> bytes:
    return hashlib.shake_256(key.encode()).digest(length)


def _lookup(stream: bytes, table: npt.NDArray[np.void]) -> bytes:
    index = np.frombuffer(stream, np.uint8)
    if len(table) < len(WORDS):
        index = index % len(table)
    return table.take(index).tobytes()
