"""Read an error as a server reports it: its kind, and as much of its message as may be kept."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.shapes import UNREADABLE, decodable_error
from agentload.model.record import Record

MESSAGE_CHARS: Final = 200
# Only these first characters of a message are looked at; later ones
# are never shown, however many of the first ones are masked.
LOOKED_AT: Final = 4096
INT_DIGITS: Final = 9  # most that are read of a number
WORD_CHARS: Final = 64
KEY_CHARS: Final = 16  # a word of fewer characters cannot be an API key
BEGUN_CHARS: Final = 3  # fewer characters of a key that was cut off give nothing away
QUOTED_CHARS: Final = 32  # names of models and parameters are shorter, echoed prompts longer
# A longer wait is cut to this one: waiting longer would change the load that is measured.
MOST_PATIENCE_S: Final = 60

# A quote opens after and closes before anything but a character of a word; between two of those
# it is an apostrophe, and after a backslash text. One that is never closed ends with the message.
_TEXT = rf"(?:\\.|(?<=\w)(?P=quote)(?=\w)|(?!(?P=quote))[^\\]){{{QUOTED_CHARS},}}"
_QUOTED = re.compile(rf"(?<!\w)(?P<quote>['\"`]){_TEXT}(?:(?P=quote)(?!\w)|$)", re.DOTALL)
# The word that the cut at LOOKED_AT goes through is dropped, for half a key no longer looks like
# one. Only this many characters are searched for its start, which bounds the time.
CUT_CHARS: Final = 256
_CUT_WORD = re.compile(r"\S*\Z")
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
        message = message[:sure] + _CUT_WORD.sub("", message[sure:LOOKED_AT], count=1)
    message = _SECRET.sub("***", message)
    message = _QUOTED.sub(r"\g<quote>…\g<quote>", message)
    line = "".join(char if char.isprintable() else " " for char in message)
    line = " ".join(line.split())
    if len(line) <= MESSAGE_CHARS and not is_cut:
        return line
    return line[: MESSAGE_CHARS - 1] + "…"


def masked_word(text: str) -> str:
    """Return what should be a short word of a server (such as a type), masked and cut."""
    if len(text) < KEY_CHARS and text.replace("_", "").isalpha():
        return text
    return redact(text)[:WORD_CHARS]


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, whatever they look like.

    Where `redact` cut the text ("…" at its end), the start of a secret is removed as well.
    """
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
                message=redact(detail if isinstance(detail, str) else _as_json(detail)),
            )
        case str(text):
            return Fault(kind="error", message=redact(text))
        case _:
            return Fault(kind="error", message=redact(_as_json(found)))


def body_fault(body: bytes | bytearray) -> Fault:
    """Read the body of an error answer: JSON, or any text that a proxy wrote."""
    try:
        return fault(msgspec.json.decode(decodable_error(body)))
    except UNREADABLE:
        # one character more than is looked at shows `redact` that there is more
        return Fault(kind="error", message=redact(body[: LOOKED_AT + 1].decode(errors="replace")))


def _as_json(found: object) -> str:
    try:
        return msgspec.json.encode(found).decode()
    except (OverflowError, RecursionError):
        # a number that JSON allows and msgspec does not, or lists nested without end
        return "unreadable"


def retry_after_ns(headers: Iterable[tuple[str, str]]) -> int | None:
    """Return how long to wait before a retry, as a server asks but at most 60 s, in ns.

    None where Retry-After (RFC 9110, section 10.2.3) gives no seconds; *headers* have names in
    lower case.
    """
    asked = next((value.strip() for name, value in headers if name == "retry-after"), "")
    if asked.isdecimal():
        return min(int(asked[:INT_DIGITS]), MOST_PATIENCE_S) * SECOND
    return None


def _kind(kind: object) -> str:
    if isinstance(kind, str) and kind:
        return masked_word(kind)
    return "error"


def _code(code: object) -> int | None:
    if isinstance(code, str) and code.isdecimal() and len(code) <= INT_DIGITS:
        return int(code)
    if isinstance(code, int) and abs(code) < 10**INT_DIGITS:
        return code
    return None
