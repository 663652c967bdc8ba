"""Give the emulated model's probabilities of the next word, with the error of the arm's profile.

The true distribution depends on the last few words alone: another salt at the start of a
prompt does not change it. An arm's error at a place is the same whenever it is asked; a further
error, from the rest of the prompt and the number of other requests, is drawn for each of them.
"""

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.prompts.words import WORDS

Keys: TypeAlias = npt.NDArray[np.uint64]
Reals: TypeAlias = npt.NDArray[np.float64]
Listed: TypeAlias = tuple[tuple[str, float], ...]
"""Words with their log probabilities, the likeliest first."""

TAIL: Final = 4
"""How many last words decide what comes next."""
END: Final = b"\0"
"""What ends each text of a prompt, in the digest of all of them."""
LIKELY: Final = 48
_REST: Final = -3.0
"""Logit of all other words together."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class Places(Record):
    """Places in a text, each given by keys of the words right before it and of all before it."""

    tails: Keys
    wholes: Keys
    tokens: npt.NDArray[np.int64]


def behind(texts: Sequence[str], said: Sequence[str], tokens: int) -> Places:
    """Return the places before each token of an answer; the prompt has *tokens* tokens."""
    last: list[str] = []
    for text in reversed(texts):
        if len(last) < TAIL:
            last = [*text.rsplit(maxsplit=TAIL)[-TAIL:], *last][-TAIL:]
    digest = blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode() + END)
    return after(last, digest.digest(), said, tokens)


def after(last: Sequence[str], digest: bytes, said: Sequence[str], tokens: int) -> Places:
    """Return the places before each token of an answer to a prompt of *tokens* tokens.

    Of the prompt, its *last* words and the digest of all of it are enough.
    """
    missing = [""] * (TAIL - len(last))
    answer = [piece.strip() for piece in said]
    ids = _ids([*missing, *last, *answer])
    whole = np.frombuffer(digest, "<u8").astype(np.uint64)
    counts = np.arange(len(said))
    return Places(
        tails=_folded(ids)[:-1],
        wholes=_mixed(whole ^ counts.astype(np.uint64)),
        tokens=tokens + counts,
    )


def within(words: Sequence[str]) -> Places:
    """Return the places before each word of a prompt except the first."""
    before = [""] * TAIL
    ids = _ids([*before, *words])
    counts = np.arange(1, len(words), dtype=np.int64)
    numbers = np.arange(len(words), dtype=np.uint64)
    with np.errstate(over="ignore"):
        placed = ids[TAIL:] + numbers * _ODD
        wholes = np.cumsum(_mixed(placed), dtype=np.uint64)
    tails = _folded(ids)
    return Places(tails=tails[1:-1], wholes=wholes[:-1], tokens=counts)


class Ranking(Record):
    """Rank the likely words at each place, the likeliest first."""

    names: Keys
    values: npt.NDArray[np.float64]

    def likeliest(self, most: int) -> list[Listed]:
        """Return the *most* likely words at each place."""
        kept = max(1, most)
        names, values = self.names[:, :kept].tolist(), self.values[:, :kept].tolist()
        found = []
        for of_place in zip(names, values, strict=True):
            pairs = zip(*of_place, strict=True)
            found.append(tuple([(WORDS[name], round(value, 6)) for name, value in pairs]))
        return found


def likeliest_words(
    arm: ArmProfile, at: Places, *, seed: int, company: int, most: int
) -> list[Listed]:
    """Return the *most* likely words at each place, likeliest first.

    *company* is the number of other requests served at the same time.
    """
    return ranking(arm, at, seed=seed, company=company).likeliest(most)


def ranking(arm: ArmProfile, at: Places, *, seed: int, company: int) -> Ranking:
    """Rank the likely words at each place.

    *company* is the number of other requests served at the same time.
    """
    logits, first, stride = _truth(at.tails, seed)
    said = arm.logprobs
    beyond = np.inf if said.broken_from is None else said.broken_from
    error = np.where(at.tokens >= beyond, said.broken_error, said.error)[:, None]
    logits = (
        logits
        + error * _normal(at.tails, f"{seed} {arm.name}")
        + said.batch * _normal(at.wholes, f"{seed} {arm.name} {company}")
    )
    scaled = logits - np.logaddexp(np.logaddexp.reduce(logits, axis=1), _REST)[:, None]
    order = np.argsort(-scaled, axis=1, kind="stable")
    names = (first[:, None] + order.astype(np.uint64) * stride[:, None]) % np.uint64(len(WORDS))
    return Ranking(names=names, values=np.take_along_axis(scaled, order, axis=1))


def of_answer(likely: Listed, said: str, *, most: int) -> Listed:
    """Return the list for a token of a greedy answer: that token comes first."""
    words = [said, *(f" {word}" for word, _ in likely if word != said.strip())]
    values = [value for _, value in likely[:most]]
    return tuple(zip(words, values, strict=False))


def of_prompt(likely: Listed, word: str) -> Listed:
    """Return the list for a token of a prompt: that token with its own value, then others."""
    values = dict(likely)
    own = values.pop(word, likely[-1][1] - 1.0)
    others = [(f" {each}", value) for each, value in values.items()]
    return ((word, own), *others)


def _truth(tails: Keys, seed: int) -> tuple[Reals, Keys, Keys]:
    """Return the logits of the likely words at each place, and which words these are.

    Some places are sure of one word; at others several words are about as likely.
    """
    keys = _mixed(tails ^ _key(f"{seed}"))
    sure = 0.5 + 2.0 * _uniform(keys)
    ranks = np.log(np.arange(1, LIKELY + 1, dtype=np.float64))
    falling = -sure[:, None] * ranks
    logits = falling + 0.3 * _normal(keys, "truth")
    stride = _mixed(keys) | np.uint64(1)  # odd, so that no word comes twice
    return logits, keys, stride


def _ids(words: Sequence[str]) -> Keys:
    known = {word: zlib.crc32(word.encode()) for word in set(words)}
    return np.fromiter((known[word] for word in words), np.uint64, len(words))


def _folded(ids: Keys) -> Keys:
    """Return one key for each run of TAIL ids."""
    count = len(ids) - TAIL + 1
    out = np.zeros(count, np.uint64)
    for offset in range(TAIL):
        out = _mixed(out ^ ids[offset : offset + count])
    return out


def _key(text: str) -> np.uint64:
    digest = blake2b(text.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mixed(keys: Keys) -> Keys:
    """Scramble 64 bits (Steele, Lea, Flood 2014: SplitMix64)."""
    with np.errstate(over="ignore"):
        keys = keys + _ODD
        keys ^= keys >> np.uint64(30)
        keys *= np.uint64(0xBF58476D1CE4E5B9)
        keys ^= keys >> np.uint64(27)
        keys *= np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
        return keys


def _uniform(keys: Keys) -> Reals:
    return ((keys >> np.uint64(11)).astype(np.float64) + 0.5) / (1 << 53)


def _normal(keys: Keys, what: str) -> Reals:
    """Draw a standard normal number for every key and likely word."""
    numbers = np.arange(2 * LIKELY, dtype=np.uint64)
    own = keys ^ _key(what)
    with np.errstate(over="ignore"):
        bits = _mixed(own[:, None] + numbers * _ODD)
    first = _uniform(bits[:, :LIKELY])
    second = _uniform(bits[:, LIKELY:])
    radius = np.sqrt(-2 * np.log(first))
    drawn: Reals = radius * np.cos(2 * np.pi * second)
    return drawn
