"""Make characters visible that would act on who reads them: servers name models and settings, and logs hold anything."""

import re
from typing import Final

ACTING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Characters that control a terminal, the direction of text, or nothing that is seen; halves of others, which cannot be written."""


def visible(text: str) -> str:
    """Return a text whose acting characters can be seen and do nothing; lines and tabs stay."""
    return ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
