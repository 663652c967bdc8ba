from __future__ import annotations

import pytest

from agentload.errors import LaunchError, StoreError, alone, is_out_of_memory

FULL, LOST = StoreError("disk full"), LaunchError("worker lost")


def raised(error: BaseException) -> None:
    with alone():
        raise error


def test_what_tasks_side_by_side_raised_is_told_as_if_one_had_raised_it() -> None:
    with pytest.raises(StoreError) as caught:
        raised(ExceptionGroup("tasks", [ExceptionGroup("inner", [FULL]), LOST]))
    assert caught.value is FULL


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        KeyError("bug"),
        ExceptionGroup("bug", [KeyError("bug")]),
        ExceptionGroup("both", [FULL, KeyError("bug")]),
    ],
)
def test_mistakes_of_ours_and_single_errors_stay_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        raised(error)
    assert caught.value is error


def in_the_course_of(error: BaseException, other: BaseException) -> BaseException:
    error.__context__ = other
    return error


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (
            ExceptionGroup("tasks", [KeyError("bug"), ExceptionGroup("inner", [MemoryError()])]),
            True,
        ),
        (in_the_course_of(RuntimeError("loop closed"), MemoryError()), True),
        (RuntimeError("can't start new thread"), True),
        (in_the_course_of(FULL, LOST), False),
        (ExceptionGroup("bug", [KeyError("bug")]), False),
        (ImportError("libarrow.so.2600: failed to map segment from shared object"), True),
    ],
)
def test_a_lack_of_memory_is_told_from_a_bug_wherever_it_struck(
    error: BaseException, *, is_it: bool
) -> None:
    assert is_out_of_memory(error) is is_it
