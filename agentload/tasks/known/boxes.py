r"""Find the final answer `\boxed{…}` of a solution, and compare two expressions as MATH does.

Two expressions are equal if they are the same text after what does not matter is taken out:
spaces, dollar signs, sizes of brackets, units, degrees and percent signs, a name before `=`; or if
both are numbers, as an integer, a decimal, a fraction or `\frac{a}{b}`, of the same value.
"""

import re
from fractions import Fraction
from typing import Final

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*\{")
MOST: Final = 100
"""Boxes that are tried, from the last one back: an answer that loops may open thousands."""
LONGEST: Final = 300
"""Characters of the longest text that is read as a number."""
_DROPPED: Final = re.compile(
    r"\\left|\\right|\\[!,;: ]|\\\$|\$|\\%|%|\^\{?\\circ\}?|\\(?:text|mathrm|mbox)\{\s*(?:units?|"
    r"inches|inch|cm|degrees|square[^}]*|cents|dollars|feet|hours|minutes|seconds)\s*\}(?:\^\d)?"
)
_WORDS: Final = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}")
_SHORT_FRACTION: Final = re.compile(r"\\frac(\d)(\d)")
_SHORT_ROOT: Final = re.compile(r"\\sqrt(\w)")
_NAME: Final = re.compile(r"^[a-zA-Z]{1,2}(?:\([a-z]\))?=")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_FRACTION: Final = re.compile(r"(-?)\\frac\{(-?\d+)\}\{(-?\d+)\}")
_PLAIN: Final = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)|-?\d+/\d+")


def final_box(answer: str) -> str | None:
    r"""Return what the last complete `\boxed{…}` of an answer holds; None if there is none."""
    for match in reversed(list(_BOX.finditer(answer))[-MOST:]):
        content = _text_in_braces(answer, match.end())
        if content is not None:
            return content
    return None


def _text_in_braces(text: str, start: int) -> str | None:
    """Return what stands between a brace that opened before *start* and the one that closes it."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return None


def is_equal(one: str, other: str) -> bool:
    """Return whether two expressions are the same answer."""
    first, second = normal(one), normal(other)
    if first == second:
        return True
    values = number(first), number(second)
    return None not in values and values[0] == values[1]


def normal(expression: str) -> str:
    """Return an expression without what does not matter."""
    text = expression.strip().rstrip(".")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = _DROPPED.sub("", text)
    text = _WORDS.sub(r"\1", text)
    text = "".join(text.split())
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    return _NAME.sub("", text)


def number(text: str) -> Fraction | None:
    """Return the value of a number; None if the text is none."""
    text = _THOUSANDS.sub("", text.replace("{,}", ","))
    if len(text) > LONGEST:
        return None
    if match := _FRACTION.fullmatch(text):
        sign, top, bottom = match.groups()
        if int(bottom) == 0:
            return None
        return Fraction(int(f"{sign}1") * int(top), int(bottom))
    if not _PLAIN.fullmatch(text) or not int(text.partition("/")[2] or 1):
        return None
    return Fraction(text)
