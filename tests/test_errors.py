from __future__ import annotations

import pytest

from agentload.errors import LaunchError, StoreError, alone

FULL, LOST = StoreError("disk full"), LaunchError("worker lost")


def raised(error: BaseException) -> None:
    with alone():
        raise error


def test_what_tasks_side_by_side_raised_is_told_as_if_one_had_raised_it() -> None:
    with pytest.raises(StoreError) as caught:
        raised(ExceptionGroup("tasks", [ExceptionGroup("inner", [FULL]), LOST]))
    assert caught.value is FULL


@pytest.mark.parametrize(
    "error", [FULL, KeyError("bug"), ExceptionGroup("bug", [KeyError("bug")]), ExceptionGroup("both", [FULL, KeyError("bug")])]
)
def test_mistakes_of_ours_and_single_errors_stay_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        raised(error)
    assert caught.value is error
