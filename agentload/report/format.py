"""Put numbers into words.

Significant digits that the interval earns, units a reader expects, a real minus sign.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar

from advisor import words
from advisor.estimate import Estimate, present

ABSENT: Final = "–"
MINUS: Final = "−"
SMALLEST_PLAIN: Final = 1e-3
"""Figures below it are printed by a power of ten."""
_TIMES: Final = ((1_000, 1, "ms"), (120_000, 1_000, "s"), (7_200_000, 60_000, "min"))
_HYPHEN: Final = re.compile(r"(?<![\w.)])-(?=\.?\d)")
_LOOSE: Final = re.compile(r"(?<=\d) %")
_TIMES_AS_LARGE: Final = re.compile(r"(?<=\d)x(?=[\s.,;:)]|$)")
_ENDS: Final = re.compile(r"\[([^\[\],]+?)%?, ([^\[\],]+?)%?\]")
_RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

T = TypeVar("T")
Shown = TypeVar("Shown")
PrintNumber: TypeAlias = Callable[[float, int], str]
Ends: TypeAlias = tuple[float, float | None, float | None]
"""A value and the ends of its interval."""
Quantity: TypeAlias = Literal[
    "tokens", "ms", "duration", "percent", "share", "count", "seconds", "tokens/s"
]
"""What an axis measures: `ms` prints bare numbers, `duration` chooses ms, s or min for each."""


def number(value: float, decimals: int = 0) -> str:
    """Print a number with fixed decimals and thousands apart."""
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")):
        return text.replace("-", MINUS)
    return text.removeprefix("-")


def with_sign(value: float, decimals: int = 0) -> str:
    """Print a number that always shows its sign, except a zero."""
    text = number(value, decimals)
    if value <= 0 or not any(digit in text for digit in "123456789"):
        return text
    return f"+{text}"


def whole(value: float, decimals: int = 0) -> str:
    """Print a count: whole, whatever decimals its interval would earn."""
    return number(value, min(decimals, 0))


def significant(value: float, digits: int = 2) -> str:
    """Print a number to *digits* significant digits, without an exponent.

    Whole parts are kept whole.
    """
    if value == 0:
        return "0"
    return number(value, max(0, digits - 1 - _exponent(value)))


def _exponent(value: float) -> int:
    """Return the power of ten of a number's leading digit."""
    return math.floor(math.log10(abs(value)))


def decimals(half_width: float) -> int:
    """Return how many decimals an interval of this half width earns.

    The rule of the Particle Data Group: two digits of the error
    while they lie below 3.55 of the leading power, else one.
    """
    if not math.isfinite(half_width) or half_width <= 0:
        return 1
    exponent = _exponent(half_width)
    digits = 2 if half_width / 10**exponent < 3.55 else 1
    return max(0, digits - 1 - exponent)


def change(estimate: Estimate | None) -> str:
    """Print a relative change as `−6.0% [−7.9, −4.1]`.

    With one decimal everywhere, as in the advisor's sentences.
    """
    if estimate is not None and estimate.is_bound:
        return typeset(words.change(estimate))
    return spread(estimate, with_sign, factor=100, unit="%", places=_tenths(estimate))


def _tenths(estimate: Estimate | None) -> int:
    """Return one decimal for a share in percent, more where one would not show its interval."""
    if estimate is None:
        return 1
    ends = present((estimate.low, estimate.high))
    wide = max((abs(estimate.value - end) for end in ends), default=0.0)
    if 0 < wide < 1e-3:
        return decimals(100 * wide)
    return 1


def points(estimate: Estimate | None) -> str:
    """Print a difference of shares in percentage points: `−0.6 pp [−2.2, +1.0]`."""
    if estimate is not None and words.is_vague(estimate):
        return f"{with_sign(100 * estimate.value, 1)} pp {words.TOO_FEW}"
    return spread(estimate, with_sign, factor=100, unit=" pp", places=_tenths(estimate))


def tenths(share: float) -> str:
    """Print a share of one in percent, with a decimal: `81.3%`."""
    return f"{number(100 * share, 1)}%"


def relative(change: float) -> str:
    """Print a relative change, with a decimal: `−6.0%`."""
    return f"{with_sign(100 * change, 1)}%"


def spread(
    estimate: Estimate | None,
    print_number: PrintNumber,
    *,
    factor: float = 1.0,
    unit: str = "",
    among: Iterable[Estimate | None] = (),
    places: int | None = None,
) -> str:
    """Print a value and its interval, an open end in words.

    They have *places* decimals, else as many as they earn, or as the least certain of those
    *among* which they are read.
    """
    if estimate is None or not math.isfinite(estimate.value):
        return ABSENT
    value, *ends = _times_factor(estimate, factor)
    is_bare = ends == [None, None]
    if places is None:
        known = [each for each in present(among) if math.isfinite(each.value)]
        compared = [_times_factor(each, factor) for each in known or (estimate,)]
        places = _most_places(compared) if is_bare else _least_earned(compared)
    text = f"{print_number(value, places)}{unit}"
    if is_bare:
        return text
    shown = partial(_bound, print_number=print_number, places=places)
    return f"{text} {words.interval(*where_known(ends, shown))}"


def _most_places(compared: Iterable[Ends]) -> int:
    """Return the decimals that show each value beside the others."""
    return max(_places(value) for value, *_ in compared)


def _least_earned(compared: Iterable[Ends]) -> int:
    """Return the decimals that the widest interval earns."""
    return min((_earned_decimals(*each) for each in compared if any(each)), default=0)


def _times_factor(estimate: Estimate, factor: float) -> Ends:
    """Return a value and the ends of its interval, times a factor."""
    return factor * estimate.value, _end(estimate.low, factor), _end(estimate.high, factor)


def _end(end: float | None, factor: float) -> float | None:
    """Return an end of an interval by a factor; None where it is open."""
    if end is None or not math.isfinite(end):
        return None
    return factor * end


def _earned_decimals(value: float, low: float | None, high: float | None) -> int:
    """Return the decimals that a figure earns: those of three significant digits at most.

    Of its interval fewer, and more only where the interval is narrower than these.
    """
    apart = [abs(value - end) for end in present((low, high))]
    if not any(apart):
        return _places(value)
    half_width = sum(apart) / len(apart)
    most = _digits(value)
    earned = decimals(half_width)
    if half_width >= 10.0**-most:
        return min(earned, most)
    return earned


def _digits(value: float) -> int:
    """Return the decimals of three significant digits."""
    if not value:
        return 0
    return max(0, 2 - _exponent(value))


def _places(value: float) -> int:
    """Return the decimals that show three significant digits, without zeros at the end.

    Below one two digits do.
    """
    digits = _digits(value)
    if 0 < abs(value) < 1:
        digits -= 1
    text = _without_zeros(f"{value:.{digits}f}")
    _, _, decimal_places = text.partition(".")
    return len(decimal_places)


def _bound(value: float, print_number: PrintNumber, places: int) -> str:
    """Print an end of an interval.

    An end that is not zero is never printed as zero: nobody shall read a bound that was not found.
    """
    if value and print_number is not whole and round(value, places) == 0:
        places = -_exponent(value)
    return print_number(value, places)


def estimate(each: Estimate | None, *, among: Sequence[Estimate | None] = ()) -> str:
    """Print an estimate in the way its unit is read.

    With the unit and the decimals of those *among* which it is read.
    """
    if each is None:
        return ABSENT
    match each.unit:
        case "relative" | "relative change":
            return change(each)
        case "pp" | "points":
            return spread(each, with_sign, unit=" pp", among=among)
        case "share":
            return _share(each, among)
        case "ms":
            return _time(each, among)
        case "count":
            return spread(each, whole)
        case "tokens" if each.low is None and each.high is None:
            return number(each.value)  # a count that the server reported, as it prints it
        case "tokens" | "KV tokens":
            return token_range(each.value, each.low, each.high)
        case unit if 0 < abs(each.value) < SMALLEST_PLAIN:
            power = -_exponent(each.value)
            raised = f" ×10⁻{str(power).translate(_RAISED)} {unit}".rstrip()
            return spread(each, number, factor=10.0**power, unit=raised)
        case unit:
            return spread(each, number, unit=f" {unit}".rstrip(), among=among)


def _share(each: Estimate, among: Sequence[Estimate | None]) -> str:
    """Print a share in percent; one without an interval has a decimal at most."""
    is_bare = each.low is None and each.high is None
    has_tenths = round(100 * each.value, 1) % 1 != 0
    places = 1 if is_bare and has_tenths else None
    return spread(each, number, factor=100, unit="%", among=among, places=places)


def _time(each: Estimate, among: Sequence[Estimate | None]) -> str:
    """Print a time in the unit of those among which it is read, unless they differ tenfold."""
    alike = [other for other in present(among) if _is_alike(each, other)]
    largest = max((other.value for other in alike), default=each.value)
    size, unit = _time_unit(largest)
    return spread(each, number, factor=1 / size, unit=f" {unit}", among=alike)


def _is_alike(one: Estimate, other: Estimate) -> bool:
    """Tell whether two figures are near enough for one unit."""
    small, large = sorted((abs(one.value), abs(other.value)))
    return large < TENFOLD * small or one is other


def token_range(value: float | None, low: float | None, high: float | None) -> str:
    """Print token counts with their interval: `7.0k [2.4k, 10k]`."""
    if low is None and high is None:
        return tokens(value)
    return f"{tokens(value)} {words.interval(*where_known((low, high), tokens))}"


def percent(share: float | None) -> str:
    """Print a share of one as `81%`, with a decimal where whole percents would hide it."""
    if share is None or not math.isfinite(share):
        return ABSENT
    value = 100 * share
    is_near_an_end = 0 < abs(value) < 1 or 99 < value < 100
    return f"{number(value, 1 if is_near_an_end else 0)}%"


def tokens(count: float | None) -> str:
    """Print a token count as `875`, `7.0k`, `31k`, `1.2M`: k is 1,024, as where they are typed."""
    if count is None or not math.isfinite(count):
        return ABSENT
    if abs(count) < 999.5:
        return number(count)
    k = count / words.K
    if abs(k) < 999.5:
        is_whole = k.is_integer() or abs(k) >= 9.95
        return f"{number(k, 0 if is_whole else 1)}k"
    m = k / words.K
    return f"{number(m, 0 if m.is_integer() else 1)}M"


def duration(ms: float | None, digits: int = 3) -> str:
    """Print milliseconds in the unit that reads best, to three significant digits."""
    if ms is None or not math.isfinite(ms):
        return ABSENT
    size, unit = _time_unit(ms)
    return f"{shorten(ms / size, digits)} {unit}"


TENFOLD: Final = 10
"""Values that differ by this have a unit each; closer ones have one unit and its decimals."""


def durations(times: Sequence[float | None]) -> tuple[str | None, ...]:
    """Print milliseconds that are compared: in one unit, with the decimals of the largest."""
    known = present(times)
    if not _are_alike(known):
        return where_known(times, duration)
    size, unit = _time_unit(max(known))
    places = _digits(max(known) / size)
    return where_known(times, lambda ms: f"{number(ms / size, places)} {unit}")


def numbers(values: Sequence[float | None]) -> tuple[str | None, ...]:
    """Print numbers that are compared: with the decimals of the largest."""
    known = present(values)
    if not _are_alike(known):
        return where_known(values, partial(significant, digits=3))
    return where_known(values, partial(number, decimals=_digits(max(known))))


def where_known(
    values: Iterable[T | None], show: Callable[[T], Shown | None]
) -> tuple[Shown | None, ...]:
    """Return what is shown of each value that is known; None stays."""
    return tuple(None if each is None else show(each) for each in values)


def _are_alike(known: Sequence[float]) -> bool:
    """Tell whether figures are near enough for one unit and its decimals."""
    return bool(known) and max(known) < TENFOLD * min(known)


MOST_NAMED: Final = 4
FEWEST_DIGITS: Final = 3
MOST_DIGITS: Final = 6


def apart_from(limit: float | None, value: float, show: Callable[[float, int], str]) -> str:
    """Print a value that is compared with a limit: where both read alike, to more digits.

    *show* prints a number to so many significant digits.
    """
    if limit is None or limit == value:
        return show(value, FEWEST_DIGITS)
    for digits in range(FEWEST_DIGITS, MOST_DIGITS):
        text = show(value, digits)
        if text != show(limit, digits):
            return text
    return show(value, MOST_DIGITS)


def _time_unit(ms: float) -> tuple[float, str]:
    for limit, size, unit in _TIMES:
        if abs(ms) < 0.9995 * limit:
            return size, unit
    return 3_600_000, "h"


def minutes(count: float | None) -> str:
    """Print minutes as a budget: `40 s`, `7 min`, `2.5 h`."""
    if count is None or not math.isfinite(count):
        return ABSENT
    if count < 1:
        return f"{number(count * 60)} s"
    if count < 120:
        return f"{number(count)} min"
    return f"{shorten(count / 60, 2)} h"


def when(at_ns: int | None) -> str:
    """Print an instant of the wall clock to the minute, in UTC."""
    if at_ns is None:
        return ABSENT
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d %H:%M}"


def shorten(value: float, digits: int = 3) -> str:
    """Print a number to *digits* significant digits, without zeros at its end."""
    return _without_zeros(significant(value, digits))


def _without_zeros(text: str) -> str:
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def typeset(words: str) -> str:
    """Set a sentence as the figures around it are set.

    A real minus, `×` for times as much, the unit of an interval once.
    """
    words = _TIMES_AS_LARGE.sub("×", words)
    words = _HYPHEN.sub(MINUS, words.replace(" - ", f" {MINUS} "))
    # Sentences that earlier versions stored have a space before the sign.
    return _ENDS.sub(r"[\1, \2]", _LOOSE.sub("%", words))


def capital(text: str) -> str:
    """Write a text as a sentence begins, with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def join(parts: Iterable[str | None], by: str = ", ") -> str:
    """Join the parts that say something."""
    return by.join(part for part in parts if part)


def join_if(parts: Mapping[str, object], by: str = ", ") -> str:
    """Join the texts whose condition holds."""
    return by.join(text for text, holds in parts.items() if holds)


def enumeration(names: Sequence[str]) -> str:
    """Join names as a sentence does: `rag, chat and code`.

    Of more than `MOST_NAMED`, the first ones and how many more there are.
    """
    shown = list(names)
    if len(names) > MOST_NAMED:
        shown[MOST_NAMED - 1 :] = [f"{len(names) - MOST_NAMED + 1} more"]
    return join((", ".join(shown[:-1]), *shown[-1:]), " and ")


def plural(count: int, noun: str) -> str:
    """Print a count with its noun: `1 call`, `260 calls`."""
    ending = "" if count == 1 else "s"
    return f"{number(count)} {noun}{ending}"


def axis_value(quantity: Quantity, value: float) -> str:
    """Print one value of a chart's axis, with its unit, for a person who points at it."""
    match quantity:
        case "tokens":
            return f"{tokens(value)} tokens"
        case "tokens/s":
            return f"{significant(value, 3)} tokens/s"
        case "ms" | "duration":
            return duration(value)
        case "percent":
            return f"{with_sign(value, 1)}%"
        case "share":
            return percent(value)
        case "seconds":
            return duration(value * 1_000)
        case "count":
            return significant(value, 3)


def tick(quantity: Quantity, value: float, step: float) -> str:
    """Print one tick of an axis, as short as the step between ticks allows."""
    match quantity:
        case "tokens":
            return tokens(round(value)).replace(".0", "")
        case "duration":
            return duration(value)
        case "share":
            return percent(value)
        case "percent":
            return with_sign(value, _step_places(step))
        case "ms" | "count" | "seconds" | "tokens/s":
            return number(value, _step_places(step))


def _step_places(step: float) -> int:
    """Return the decimals that tell ticks apart."""
    leading = math.floor(math.log10(step) + 1e-9)
    return max(0, -leading)
