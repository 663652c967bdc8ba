"""Read an error as a server reports it: its kind, and as much of its message as may be kept."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.shapes import UNREADABLE, decodable_error
from agentload.model.record import Record

MESSAGE_CHARS = 200
# Only these first characters of a message are looked at; later ones
# are never shown, however many of the first ones are masked.
LOOKED_AT: Final = 4096
CODE_DIGITS: Final = 9
WORD_CHARS: Final = 64
KEY_CHARS: Final = 16  # a word of fewer characters cannot be an API key
BEGUN_CHARS = 3  # fewer characters of a key that was cut off give nothing away
QUOTED_CHARS = 32  # names of models and parameters are shorter, echoed prompts longer
# A server that asks for a longer wait is not waited for: the load would be another one.
MOST_PATIENCE_S = 60

# A quote opens after and closes before anything but a letter; between letters it is an apostrophe.
_TEXT = rf"(?:\\.|(?<=\w)(?P=quote)(?=\w)|(?!(?P=quote))[^\\]){{{QUOTED_CHARS},}}"
_QUOTED = re.compile(rf"(?<!\w)(?P<quote>['\"`]){_TEXT}(?:(?P=quote)(?!\w)|$)", re.DOTALL)
# A word that was cut may be a key, and half a key no longer looks like one.
_CUT = re.compile(r"\S*\Z")
CUT_CHARS: Final = 256  # are looked at for the start of such a word
_SECRET = re.compile(
    r"(?i:bearer\s+\S+)|\b(?:sk|hf|key|token)[-_][\w-]{6,}|\b(?=\w*\d)[A-Za-z0-9_-]{32,}\b"
)


class Fault(Record):
    """Describe an error as a server reported it."""

    kind: str
    message: str
    code: int | None = None

    @property
    def text(self) -> str:
        """Kind and message on one line."""
        if self.message:
            return f"{self.kind}: {self.message}"
        return self.kind


def redact(message: str) -> str:
    """Cut a server's message to one line of at most 200 characters; remove keys and long quotes.

    Servers echo prompts in their errors, and prompts are nobody's business but the user's.
    """
    is_cut = len(message) > LOOKED_AT
    if is_cut:
        sure = LOOKED_AT - CUT_CHARS
        message = message[:sure] + _CUT.sub("", message[sure:LOOKED_AT], count=1)
    message = _SECRET.sub("***", message)
    message = _QUOTED.sub(r"\g<quote>…\g<quote>", message)
    line = "".join(char if char.isprintable() else " " for char in message)
    line = " ".join(line.split())
    if len(line) <= MESSAGE_CHARS and not is_cut:
        return line
    return line[: MESSAGE_CHARS - 1] + "…"


def word(text: str) -> str:
    """Return what should be a short word of a server (such as a type), masked and cut."""
    if len(text) < KEY_CHARS and text.replace("_", "").isalpha():
        return text
    return redact(text)[:WORD_CHARS]


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, nor the start of one where the text was cut."""
    for secret in secrets:
        text = text.replace(secret, "***")
        if text.endswith("…"):
            begun = next(
                (
                    size
                    for size in range(len(secret) - 1, BEGUN_CHARS - 1, -1)
                    if text[:-1].endswith(secret[:size])
                ),
                0,
            )
            text = f"{text[: len(text) - 1 - begun]}***…" if begun else text
    return text


def fault(found: object) -> Fault:
    """Read a server's decoded error: an object like OpenAI's, FastAPI's `detail`, or text."""
    match found:
        case {"error": error} if error is not None:
            return fault(error)
        case {"message": str(message), **rest}:
            return Fault(
                kind=_kind(rest.get("type")), message=redact(message), code=_code(rest.get("code"))
            )
        case {"detail": detail}:
            return Fault(
                kind="detail",
                message=redact(detail if isinstance(detail, str) else _written(detail)),
            )
        case str(text):
            return Fault(kind="error", message=redact(text))
        case _:
            return Fault(kind="error", message=redact(_written(found)))


def body_fault(body: bytes | bytearray) -> Fault:
    """Read the body of an error answer: JSON, or any text that a proxy wrote."""
    try:
        return fault(msgspec.json.decode(decodable_error(body)))
    except UNREADABLE:
        return Fault(kind="error", message=redact(body[: LOOKED_AT + 1].decode(errors="replace")))


def _written(found: object) -> str:
    try:
        return msgspec.json.encode(found).decode()
    except (OverflowError, RecursionError):
        # a number that JSON allows and msgspec does not, or lists nested without end
        return "unreadable"


def retry_after_ns(headers: Iterable[tuple[str, str]]) -> int | None:
    """Return how long a server asks us to wait before a retry (RFC 9110, section 10.2.3), in ns.

    None where Retry-After gives no seconds; *headers* have names in lower case. At most 60 s.
    """
    asked = next((value.strip() for name, value in headers if name == "retry-after"), "")
    if asked.isdecimal():
        return min(int(asked[:9]), MOST_PATIENCE_S) * SECOND
    return None


def _kind(kind: object) -> str:
    if isinstance(kind, str) and kind:
        return word(kind)
    return "error"


def _code(code: object) -> int | None:
    if isinstance(code, str) and code.isdecimal() and len(code) <= CODE_DIGITS:
        return int(code)
    if isinstance(code, int) and abs(code) < 10**CODE_DIGITS:
        return code
    return None
