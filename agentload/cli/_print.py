"""Print results on standard output, for people and for machines,
and what is only for people who watch on standard error.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Event, Lock, Thread
from typing import Final, Literal, TextIO

from agentload.visible import columns

ABSENT: Final = "–"
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
Style = Literal["bad", "doubtful", "good", "strong", "faint"]
_CODES: Final[dict[Style, str]] = {
    "bad": "31",
    "doubtful": "33",
    "good": "32",
    "strong": "1",
    "faint": "2",
}
_QUIET: Final = ContextVar("quiet", default=False)
_WORDING: Final[ContextVar[Callable[[str], str]]] = ContextVar("wording", default=str)


def paint(text: str, style: Style, stream: TextIO) -> str:
    """Give text a colour on a terminal, unless NO_COLOR is set."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    if is_plain or not text:
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def paint_words(text: str, styles: Mapping[str, Style]) -> str:
    """Colour the first of each of these words for standard output."""
    for words, style in styles.items():
        text = text.replace(words, paint(words, style, sys.stdout), 1)
    return text


@contextmanager
def silence(*, is_quiet: bool) -> Iterator[None]:
    """Print no notices and no progress while the block runs, where *is_quiet*.

    A block inside a silent one is silent too.
    """
    token = _QUIET.set(is_quiet or _QUIET.get())
    try:
        yield
    finally:
        _QUIET.reset(token)


@contextmanager
def worded_by(wording: Callable[[str], str]) -> Iterator[None]:
    """Have *wording* rephrase each text that is printed while the block runs.

    A study may be written in a file: its reader knows fields where the text names options.
    """
    token = _WORDING.set(wording)
    try:
        yield
    finally:
        _WORDING.reset(token)


def rephrase(text: str) -> str:
    """Return a text as `worded_by` has it; one with a command is left as it is, to be typed."""
    return text if "agentload " in text else _WORDING.get()(text)


def is_watched() -> bool:
    """Tell whether progress is drawn, which `--quiet` forbids.

    Standard error has to be a terminal that can move its cursor.
    """
    is_dumb = os.environ.get("TERM") == "dumb"
    return sys.stderr.isatty() and not is_dumb and not _QUIET.get()


def print_json(value: object) -> None:
    """Print a value as indented JSON.

    Dataclasses are printed by field, NaN and infinity as null. A verb with `--json` prints one such
    document and nothing else.
    """
    import msgspec  # late: `agentload --help` does not need it

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


class _Drawing:
    """Draw lines at the end of a terminal, each time in the place of those drawn before.

    A terminal that was made narrower wraps these: they then take more rows.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._widths: list[int] = []

    def draw(self, lines: Sequence[str], *, above: str = "") -> None:
        """Draw these in place of the lines before, with text *above* that stays."""
        with self._lock, suppress(OSError):  # the terminal may have gone
            wide, high = os.get_terminal_size(sys.stderr.fileno())
            wide = wide or 80  # a terminal of unknown size says 0
            high = high or 24
            rows = sum(max(1, math.ceil(width / wide)) for width in self._widths)
            shown = [line[: wide - 1] for line in lines[: max(1, high - 1)]]
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            begin = f"\r{up}\x1b[J" if self._widths else ""
            print(begin + above + "\n".join(shown), end="", file=sys.stderr, flush=True)
            self._widths = [len(line) for line in shown]


_DRAWING: Final = _Drawing()


def transient(*lines: str) -> None:
    """Draw progress on a terminal in the place of what was drawn before.

    Without lines, or with an empty one, what was drawn is removed.
    """
    if is_watched():
        _DRAWING.draw([line for line in lines if line])


def notice(text: str) -> None:
    """Say something on standard error, unless --quiet was typed."""
    text = rephrase(text)
    if is_watched():
        _DRAWING.draw((), above=f"{text}\n")
    elif not _QUIET.get():
        print(text, file=sys.stderr, flush=True)


@contextmanager
def repeatedly(act: Callable[[], object], *, every_s: float) -> Iterator[None]:
    """Act in another thread while the block runs, for the first time after *every_s*.

    An error in the act ends it, and not the block.
    """
    is_over = Event()

    def acting() -> None:
        while not is_over.wait(every_s):
            act()

    thread = Thread(target=copy_context().run, args=(acting,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def figure(value: float | None, form: str) -> str:
    """Print a figure by its format, such as `,.1f`; a dash where it is not known."""
    return ABSENT if value is None else format(value, form)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print text in columns."""
    print(*table(head, rows), sep="\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table.

    Columns of figures to the right, others to the left, none wider than it must be.
    """
    figures = {
        place
        for place, column in enumerate(zip(*rows, strict=True))
        if all(map(_is_figure, column))
    }
    yield from columns((head, *rows), right=figures)


def blocks(values: Sequence[float], *, low: float, span: float) -> str:
    """Draw values as a line of blocks, the lowest at
    *low* and the highest from *low* and *span* on.
    """
    return "".join(
        _BLOCKS[min(int((each - low) / span * len(_BLOCKS)), len(_BLOCKS) - 1) if span else 0]
        for each in values
    )


def length(tokens: int) -> str:
    """Return a length as it is typed: 8k, or the plain number where it is no multiple of 1,024."""
    if tokens % 1024 == 0:
        return f"{tokens // 1024}k"
    return f"{tokens:,}"


def _is_figure(cell: str) -> bool:
    return re.fullmatch(r"[\d.,]+%?|–", cell) is not None
