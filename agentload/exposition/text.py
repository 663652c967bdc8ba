"""Read the wanted samples of a /metrics text, in linear time whatever a server writes into it.

prometheus_client's parser takes the square of a line's
length, and reads all of a page where a twentieth is wanted.
"""

import re
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Final, NamedTuple

MOST_CHARACTERS: Final = 1 << 24
"""Most characters of a page; vLLM writes 100 kB for an engine."""
MOST_OF_A_LINE: Final = 1 << 16
MOST_LABELS: Final = 1_000
NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*[ \t]*")
LABEL: Final = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*,?[ \t]*'
)
BLANKS: Final = re.compile(r"[ \t]*")
ESCAPED: Final = re.compile(r'\\([\\n"])')
COUNTER: Final = re.compile(r"#[ \t]*TYPE[ \t]+(\S+)[ \t]+counter\b")


class OversizeError(ValueError):
    """Report a page, a line or a list of labels longer than any that servers write."""


class MetricSample(NamedTuple):
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str, wanted: frozenset[str]) -> Iterator[MetricSample]:
    """Yield the samples with a wanted name; raise ValueError for text without metrics.

    A counter has the suffix `_total`, also where the page leaves it out.
    """
    if len(text) > MOST_CHARACTERS:
        raise OversizeError(f"more than {MOST_CHARACTERS >> 20} MB")
    totals: dict[str, str] = {}
    for read in StringIO(text):
        line = read.strip()
        if len(line) > MOST_OF_A_LINE:
            raise OversizeError(f"a line of more than {MOST_OF_A_LINE >> 10} kB")
        if line.startswith("#"):
            declared = COUNTER.match(line)
            if declared is not None and (total := f"{declared[1]}_total") in wanted:
                totals[declared[1]] = total
            continue
        if not line:
            continue
        found = NAME.match(line)
        name = "" if found is None else found[0].rstrip()
        name = totals.get(name, name)
        if found is not None and name in wanted:
            yield _sample(name, line, found.end())
        else:  # text that is no page of metrics is refused, whatever is wanted of it
            _number(line.split()[-1])


def _sample(name: str, line: str, at: int) -> MetricSample:
    labels: dict[str, str] = {}
    if line.startswith("{", at):
        # BLANKS matches nothing as well, so there is always a match
        at = BLANKS.match(line, at + 1).end()  # type: ignore[union-attr]
        while (label := LABEL.match(line, at)) is not None:
            labels[label[1]] = ESCAPED.sub(_unescaped, label[2])
            at = label.end()
            if len(labels) > MOST_LABELS:
                raise OversizeError(f"more than {MOST_LABELS:,} labels")
        if not line.startswith("}", at):
            raise ValueError(f"no label of a metric: {line[at : at + 40]!r}")
        at += 1
    words = line[at:].split(maxsplit=1)
    if not words:
        raise ValueError(f"{name} has no value")
    return MetricSample(name, labels, _number(words[0]))


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _number(word: str) -> float:
    if "_" in word:
        raise ValueError(f"no number: {word[:40]!r}")
    return float(word)
