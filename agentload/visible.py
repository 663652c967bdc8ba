"""Make characters visible that would act on who reads them:
servers name models and settings, and logs hold anything.
"""

import re
from typing import Final

ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Characters that control a terminal, the direction of text, or
nothing that is seen; halves of others, which cannot be written.
"""


def visible(text: str) -> str:
    """Return a text whose acting characters can be seen and do nothing; lines and tabs stay."""
    return ACTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
