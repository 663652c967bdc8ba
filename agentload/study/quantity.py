"""Read and write quantities as people type them: `5m`, `20k`, `3%`, `user=30`, `1k..64k`.

Each kind of quantity has one reading and one spelling.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from agentload.errors import ALIKE, UsageError
from agentload.model.record import Record

Unit: TypeAlias = Literal["", "s", "min", "ms", "tokens", "share", "points"]

LONGEST: Final = 1 << 24
_NUMBER: Final = re.compile(
    r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z%]*)", re.IGNORECASE
)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_COUNTS: Final = {"k": 1000, "m": 1_000_000, "g": 1_000_000_000}
_TOKENS: Final = {"k": 1024, "m": 1024 * 1024}
_BURST: Final = re.compile(r"([\d.]+)x([^/]+)/(.+)")


class Text(Record, kw_only=False):
    """How the values of one kind are read from a command line or a file, and written there."""

    read: Callable[[str, str], Any]
    """Takes the typed text, and the option for the error message; raises UsageError."""
    write: Callable[[Any], str]
    shown: str
    """Placeholder for a value in a help text."""
    in_words: Callable[[Any], str] | None = None
    """Writes a value with its unit, for people; None: as `write` does."""

    def say(self, value: Any) -> str:  # noqa: ANN401  # of the text's own kind
        """Write a value for people, with its unit."""
        return (self.in_words or self.write)(value)


def number(text: str, option: str, *, unit: Unit = "", usual: str | None = None) -> float:
    """Return a number in *unit*, converted from its suffix if it has one.

    Raises UsageError, whose hint has the *usual* value where none was typed.
    """
    found = _NUMBER.fullmatch(text.strip())
    value = math.nan
    suffix = ""
    if found is not None:
        value = float(found[1].replace("_", ""))
        suffix = found[2].lower()
    match unit:
        case _ if not suffix:
            pass
        case "s" | "min" | "ms" if suffix in _SECONDS:
            value = value * _SECONDS[suffix] / _SECONDS[unit]
        case "share" if suffix == "%":
            value = value / 100
            if value > 1:
                hint = option_with(option, "100%")
                raise UsageError(f"{option} is at most 100%, got '{text}'", hint=hint)
        case "points" if suffix in ("%", "pp"):
            value = value / 100
        case "tokens" if suffix in _TOKENS:
            value = value * _TOKENS[suffix]
        case "" if suffix in _COUNTS:
            value = value * _COUNTS[suffix]
        case _:
            value = math.nan
    if not math.isfinite(value):
        raise UsageError(
            f"{option} takes {_EXAMPLES[unit]}, got '{text}'",
            hint=option_with(option, likely(text, unit=unit, usual=usual)),
        )
    return value


def option_with(option: str, value: str) -> str | None:
    """Return an option with another value, as a hint; None for a field of a file."""
    if not option.startswith("--"):
        return None
    return f"{option} {value}"


def likely(text: str, *, unit: Unit, usual: str | None = None) -> str:
    """Return what a mistyped quantity probably means: `45mins` is 45m, `2,50` is 2.50.

    Without a figure in it, the quantity is the *usual* one.
    """
    found = _BEGINNING.match(_THOUSANDS.sub(r"\1", text.strip()).replace(",", "."))
    if found is None:
        return usual or _USUAL[unit]
    per = _PER.search(text)
    if unit == "" and per is not None:  # rates are per second
        return f"{float(found[1]) / (3600 if per['hour'] else 60):.3g}"
    typed = found[2].lower()
    suffix = next((each for each in _SUFFIXES[unit] if typed.startswith(each)), "")
    is_percent = unit in ("share", "points") and typed != ""
    return f"{found[1]}{'%' if is_percent else suffix}"


_BEGINNING: Final = re.compile(r"[^\d.]{0,2}(\d+\.?\d*|\.\d+)\s*([a-z%]*)", re.IGNORECASE)
_THOUSANDS: Final = re.compile(r"(?<![\d.,])([1-9]\d{0,2}),(?=\d{3}(?!\d))")
_PER: Final = re.compile(r"rpm$|(/|\bper) ?(m(in(ute)?)?|(?P<hour>h(our)?))$", re.IGNORECASE)
_TIMES: Final = ("ms", "s", "m", "h", "d")
_SUFFIXES: Final[Mapping[Unit, tuple[str, ...]]] = {
    "": ("k", "m", "g"),
    "s": _TIMES,
    "min": _TIMES,
    "ms": _TIMES,
    "tokens": ("k", "m"),
    "share": (),
    "points": (),
}
_USUAL: Final[Mapping[Unit, str]] = {
    "": "12",
    "s": "45m",
    "min": "15m",
    "ms": "500ms",
    "tokens": "2k",
    "share": "95%",
    "points": "3%",
}


_EXAMPLES: Final[Mapping[Unit, str]] = {
    "": "a number",
    "s": "a time such as 90, 90s or 1.5m",
    "min": "a time such as 15, 15m or 900s",
    "ms": "a time such as 500, 500ms or 2s",
    "tokens": "a number of tokens such as 2048 or 2k",
    "share": "a share such as 0.95 or 95%",
    "points": "a difference of shares such as 0.03 or 3pp",
}


def plain(value: float) -> str:
    """Write a number with the fewest digits that read back as the same number."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return str(int(value))
    return repr(float(value))


def whole(text: str, option: str, *, unit: Unit = "") -> int:
    """Return a whole number; `20k` is 20,000, of tokens 20,480. Raises UsageError."""
    with suppress(ValueError):
        return int(text)  # exact: a float cannot hold every whole number
    with suppress(UsageError):
        value = number(text, option, unit=unit)
        if value == int(value):
            return int(value)
    example = "2048 or 2k" if unit == "tokens" else "12"
    meant = likely(text, unit=unit)
    with suppress(ValueError, OverflowError):  # thousands of digits are infinity
        meant = str(math.ceil(float(meant)))
    raise UsageError(
        f"{option} takes a whole number such as {example}, got '{text}'",
        hint=option_with(option, meant),
    )


def _in_order(first: str, last: str) -> str:
    """Return the range that was probably meant: `1k..64` is 1k..64k, `64k..1k` is 1k..64k."""
    if first[-1] in _TOKENS and last.isdecimal():
        unit = first[-1]
        if float(last) >= float(first.removesuffix(unit)):
            return f"{first}..{last}{unit}"
    return f"{last}..{first}"


def lengths(text: str, option: str, *, least: int = 1) -> tuple[int, ...]:
    """Read lengths of contexts: `4k..128k` doubles, `8k,64k` lists, and both may be joined.

    Raises UsageError.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _length(first, option=option, least=least, whole_text=text)
        high = _length(last, option=option, least=least, whole_text=text) if dots else low
        if high < low:
            raise UsageError(
                f"{option}: '{part.strip()}' ends before it starts",
                hint=f"{option} {_in_order(first.strip(), last.strip())}",
            )
        while low < high:
            found.add(low)
            low *= 2
        found.add(high)
    return tuple(sorted(found))


def _length(text: str, *, option: str, least: int, whole_text: str) -> int:
    try:
        tokens = round(number(text, option, unit="tokens"))
    except UsageError:
        tokens = 0
    if not least <= tokens <= LONGEST:
        raise UsageError(
            f"{option}: '{text.strip()}' is no length of {least:,} to {LONGEST:,} tokens",
            hint=f"{option} {_likely_lengths(whole_text, least=least)}",
        )
    return tokens


def _likely_lengths(text: str, *, least: int) -> str:
    """Return which lengths a mistyped list probably means: `4k-32k` is 4k..32k."""
    ends = re.findall(r"\d+[km]?", text.lower())
    join = "," if "," in text else ".."
    sizes = [number(each, "", unit="tokens") for each in ends]
    is_possible = 0 < len(ends) <= (2 if join == ".." else len(ends))
    if is_possible and all(least <= size <= LONGEST for size in sizes):
        return join.join(ends)
    return "4k..128k, or 8k,64k"


def lengths_text(tokens: tuple[int, ...]) -> str:
    """Write lengths as `4k..128k` where they double from the first to the last, else as a list."""
    names = [f"{each // 1024}k" if each % 1024 == 0 else str(each) for each in tokens]
    doubles = all(after == min(2 * before, tokens[-1]) for before, after in pairwise(tokens))
    if doubles and len(names) > 1:
        return f"{names[0]}..{names[-1]}"
    return ",".join(names)


def burst(text: str, option: str) -> dict[str, float]:
    """Read FACTORxSECONDS/EVERY. Raises UsageError."""
    found = _BURST.fullmatch(text.strip())
    with suppress(UsageError):
        if found is not None:
            lasts_s, every_s = (number(found[place], option, unit="s") for place in (2, 3))
            return {"factor": number(found[1], option), "lasts_s": lasts_s, "every_s": every_s}
    raise UsageError(
        f"{option} is FACTORxSECONDS/EVERY with fewer seconds than every, got '{text}'",
        hint=f"{option} {_likely_burst(text)}",
    )


def _likely_burst(text: str) -> str:
    """Return a burst of the factor that was typed: `5` is 5x10/60."""
    return f"{likely(text.partition('x')[0], unit='') if text[:1].isdigit() else 5}x10/60"


def limits(text: str, option: str) -> dict[str, float]:
    """Read the limits of a service level: `ttft=2s,tpot=50`, in ms without a unit.

    Raises UsageError.
    """
    hint = f"{option} {_likely_limits(text)}"
    found: dict[str, float] = {}
    for part in text.split(","):
        name, mark, value = (each.strip() for each in part.partition("="))
        if not mark:
            raise UsageError(f"{option} takes NAME=TIME, got '{part.strip()}'", hint=hint)
        if name not in _LIMITS:
            raise UsageError(f"{option}: no limit '{name}'", hint=hint)
        if f"{name}_ms" in found:
            raise UsageError(f"{option} has two limits '{name}'", hint=hint)
        try:
            limit = number(value, option, unit="ms")
        except UsageError as error:
            raise UsageError(
                f"{option} takes NAME=TIME, got '{part.strip()}'", hint=hint
            ) from error
        if limit <= 0:
            raise UsageError(f"{option}: {name} must be positive, got {value}", hint=hint)
        found[f"{name}_ms"] = limit
    return found


_LIMITS: Final[Mapping[str, tuple[float, str]]] = {
    "ttft": (20.0, "2s"),
    "tpot": (0.5, "50ms"),
    "turn": (100.0, "30s"),
}
"""The limits that there are: below how many ms seconds were meant, and a usual value."""
_ALSO: Final[Mapping[str, str]] = {"itl": "tpot", "latency": "turn", "e2e": "turn"}


_LIMIT: Final = re.compile(r"([a-z]\w*)?\s*[=: ]?\s*(.*)")


def _likely_limits(text: str) -> str:
    """Return which limits a mistyped list probably means: `ttft:2sec` is ttft=2s."""
    found: dict[str, str] = {}
    for part in text.lower().split(","):
        typed = _LIMIT.match(part.strip())
        assert typed is not None
        name = _ALSO.get(typed[1] or "", typed[1])
        name = name if name in _LIMITS else "ttft"
        value = likely(typed[2], unit="ms") if re.search(r"[1-9]", part) else _LIMITS[name][1]
        found.setdefault(name, f"{value}ms" if value[-1].isdigit() else value)
    return ",".join(f"{name}={value}" for name, value in found.items())


def slo_doubts(text: str) -> Iterator[str]:
    """Yield a warning for each limit that is short and has no unit: seconds were meant."""
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        with suppress(ValueError):
            if float(value) < _LIMITS[name][0]:
                yield f"--slo {name}={value} is {value} ms; did you mean {name}={value}s?"


def parse_named(
    text: str, option: str, *, unit: Unit = "", kinds: tuple[str, ...] = (), example: str
) -> tuple[str, float]:
    """Read NAME=NUMBER; NAME must be one of *kinds*, if any are given. Raises UsageError."""
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        found = number(value, option, unit=unit)
    except UsageError as error:
        raise UsageError(
            f"{option} takes {'KIND' if kinds else 'NAME'}=NUMBER, got '{text}'",
            hint=f"{option} {_likely_named(text, unit=unit, kinds=kinds) or example}",
        ) from error
    if kinds and (name not in kinds or found < 0):
        allowed = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
        raise UsageError(
            f"{option}: kinds are {allowed}, numbers are >= 0; got '{text}'",
            hint=f"{option} {_likely_named(text, unit=unit, kinds=kinds) or example}",
        )
    return name, found


def _likely_named(text: str, *, unit: Unit, kinds: tuple[str, ...]) -> str | None:
    """Return what a mistyped NAME=NUMBER probably means: `60` is user=60; None without a number."""
    name, mark, value = text.partition("=")
    value = value if mark else name
    if not kinds or not any(map(str.isdigit, value)):
        return None
    kind = next(iter(get_close_matches(name.strip(), kinds, n=1, cutoff=ALIKE)), kinds[0])
    return f"{kind}={likely(value, unit=unit)}"


def factors(text: str, option: str) -> dict[str, float]:
    """Read NAME=FACTOR,NAME=FACTOR; a name alone has the factor 1. Raises UsageError."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, mark, value = (each.strip() for each in part.partition("="))
        try:
            found[name] = number(value, option) if mark else 1.0
        except UsageError:
            found[name] = 0.0
        if not name or found[name] <= 0:
            raise UsageError(
                f"{option} takes NAME=FACTOR, got '{part.strip()}'", hint=f"{option} m1=1,m2=1.08"
            )
    return found


def words(text: str, _option: str) -> tuple[str, ...]:
    """Read a list separated by commas; empty parts are dropped."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def _time(value_ms: float) -> str:
    """Write milliseconds as people do, `60s` or `50ms`, so that the same number is read back."""
    seconds = f"{plain(value_ms / 1000)}s"
    is_short = value_ms >= 1000 and number(seconds, "", unit="ms") == value_ms
    return seconds if is_short else f"{plain(value_ms)}ms"


LENGTHS: Final = Text(read=lengths, write=lambda value: lengths_text(tuple(value)), shown="<str>")
WORDS: Final = Text(read=words, write=",".join, shown="<str>")
BURST: Final = Text(
    read=burst,
    write=lambda value: f"{plain(value.factor)}x{plain(value.lasts_s)}/{plain(value.every_s)}",
    shown="<str>",
)
LIMITS: Final = Text(
    read=limits,
    write=lambda value: ",".join(
        f"{name}={_time(limit)}"
        for name, limit in (
            ("ttft", value.ttft_ms),
            ("tpot", value.tpot_ms),
            ("turn", value.turn_ms),
        )
        if limit is not None
    ),
    shown="<str>",
)
FACTORS: Final = Text(
    read=factors,
    write=lambda value: ",".join(f"{name}={plain(factor)}" for name, factor in value.items()),
    shown="<str>",
)
TEXT: Final = Text(read=lambda text, _: text, write=str, shown="<str>")


AT_ONCE: Final = 1e9
"""A rate at which all sessions start at once: inf, where a file needs a number."""


def _rate(text: str, option: str) -> float:
    if text.strip().lower() == "inf":
        return AT_ONCE
    return number(text, option)


RATE: Final = Text(
    read=_rate, write=lambda value: "inf" if value >= AT_ONCE else plain(value), shown="<float>"
)


def of_number(kind: type[int | float], unit: Unit, *, usual: str | None = None) -> Text:
    """Return how numbers in a unit are read and written, and which one is *usual*."""
    read = whole if kind is int else partial(number, usual=usual)
    shown = _SHOWN.get(unit, "<int>" if kind is int else "<float>")
    return Text(
        read=lambda text, option: read(text, option, unit=unit),
        write=(lambda value: with_unit(value, unit)) if unit in _WRITTEN else plain,
        shown=shown,
        in_words=lambda value: with_unit(value, unit),
    )


def with_unit(value: float, unit: Unit) -> str:
    """Write a number with its unit, the largest in which it is whole: 2700 s is 45m."""
    match unit:
        case "s" if value:
            seconds, suffix = next((each for each in _LARGEST if value % each[0] == 0), (1.0, "s"))
            return f"{plain(value / seconds)}{suffix}"
        case "ms":
            return f"{plain(value)}ms"
        case "share" | "points":
            return f"{value * 100:.4g}%"
        case "tokens" if value and value % 1024 == 0:
            return f"{plain(value // 1024)}k"
        case _:
            return plain(value)


_WRITTEN: Final = ("s", "tokens")
"""Units that are written with a value, as people write them: 2h, 128k."""
_LARGEST: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"))


_SHOWN: Final[Mapping[Unit, str]] = {
    "s": "<time>",
    "min": "<time>",
    "ms": "<time>",
    "tokens": "<tokens>",
    "share": "<share>",
}
