"""Define the errors that a user can fix; all others are bugs and keep their traceback."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, TypeVar

Raised = TypeVar("Raised", bound=BaseException)

# A slip of the finger leaves more than this alike ("inport",
# 0.83); another name does not ("langfuse" is no "ragpulse", 0.5).
ALIKE: Final = 0.65


class AgentloadError(Exception):
    """Say what is wrong, where and with which value; `hint` is a command or edit to fix it.

    The command line prints `error:` and `hint:` and exits with 1; callers from Python catch it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AgentloadError):
    """Reject options that contradict each other or cannot be read; exits with 2."""


class GateError(AgentloadError):
    """Report that a gate the user asked for was not met; exits with 3."""


class TraceError(AgentloadError):
    """Reject a trace file: the message starts with `path:line`."""


class ProfileError(AgentloadError):
    """Reject a deployment profile."""


class PlanError(AgentloadError):
    """Reject a combination of trace, arms and limits that cannot be played."""


class EndpointError(AgentloadError):
    """Report an endpoint that is unreachable, not what it claims, or does not serve the model."""


class StoreError(AgentloadError):
    """Report a journal or database that cannot be read, written or is of another version."""


class LaunchError(AgentloadError):
    """Report a server or worker process of ours that did not start or died."""


class EvidenceError(AgentloadError):
    """Report measurements that are missing or cannot carry a decision."""


class InterruptError(AgentloadError):
    """Report a run that the user stopped and the hint resumes; exits with 130."""


def nearest(
    name: str, known: Iterable[str], *, form: str = "{}", otherwise: str | None = None
) -> str:
    """Return a hint that names what the user may have meant.

    If no known name is alike, the hint is *otherwise*, or lists what is known.
    """
    names = tuple(known)
    if near := get_close_matches(name, names, n=3, cutoff=ALIKE):
        return f"did you mean {' or '.join(map(form.format, near))}?"
    return otherwise or (f"there are {', '.join(names)}" if names else "it has none")


def not_among(name: str, choices: Iterable[str], said: object) -> str:
    """Return what is wrong with a value that is none of the choices, and which they are."""
    *others, last = choices
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"{name} is {listed}, got '{said}'"


def first_of(group: BaseExceptionGroup[Raised]) -> Raised:
    """Return the first error of a group, which tasks that ran at the same time raised."""
    found = group.exceptions[0]
    return first_of(found) if isinstance(found, BaseExceptionGroup) else found


NO_MEMORY: Final = (
    "can't start new thread",
    "failed to map segment from shared object",  # a library that is loaded
)
"""Ends of messages of errors of other types that a lack of memory raises."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error comes from a lack of memory.

    Any line of code may fail for that reason, and so may the clean-up after it.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        if isinstance(each, MemoryError) or str(each).endswith(NO_MEMORY):
            return True
        seen.add(id(each))
        waiting += [
            each.__cause__,
            each.__context__,
            *(each.exceptions if isinstance(each, BaseExceptionGroup) else ()),
        ]
    return False


@contextmanager
def alone() -> Iterator[None]:
    """Raise a group's first error alone if the user can fix all; else leave it whole."""
    try:
        yield
    except BaseExceptionGroup as group:
        mendable, mistakes = group.split(AgentloadError)
        if mendable is None or mistakes is not None:
            raise
        raise first_of(mendable) from group
