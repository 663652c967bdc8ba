"""Make control characters visible: servers name models and settings, and logs hold anything."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that control a terminal or the direction of text, invisible ones, and surrogates.

Surrogates are halves of other characters and cannot be written.
"""


def visible(text: str) -> str:
    """Return a text with control characters as visible escapes; newlines and tabs stay."""
    return ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield rows of fields as lines in narrow columns; those in *right* are right-aligned."""
    seen = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*seen, strict=True)]
    for row in seen:
        fields = [
            field.rjust(width) if place in right else field.ljust(width)
            for place, (field, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(fields).rstrip()
