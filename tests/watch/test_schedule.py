"""Schedules fire as Debian's cron does, in their own zone."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import AgentloadError
from agentload.watch.schedule import (
    COUNTED,
    SECOND,
    Schedule,
    check,
    firings,
    firings_between,
    stagger_s,
    unanswered_firings,
)

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


def test_a_firing_is_never_at_or_before_the_instant_asked_for() -> None:
    hourly = Schedule(cron="0 * * * *")
    assert next(firings(hourly, at("2026-11-20T10:00:00"))) == at("2026-11-20T11:00:00")
    assert next(firings(hourly, at("2026-11-20T10:00:00") - 1)) == at("2026-11-20T10:00:00")


def test_a_schedule_is_read_in_its_zone_through_summer_and_winter() -> None:
    nightly = Schedule(cron="0 2 * * *", time_zone=BERLIN)
    found = islice(firings(nightly, at("2026-10-23T12:00:00")), 3)
    assert list(found) == [
        at("2026-10-24T00:00:00"),
        at("2026-10-25T00:00:00"),
        at("2026-10-26T01:00:00"),
    ]


def test_days_and_weekdays_that_are_both_restricted_add_up() -> None:
    found = firings_between(
        Schedule(cron="0 0 13 * 5"), at("2026-11-01T00:00:01"), at("2026-11-16T00:00:00")
    )
    assert found == (at("2026-11-06T00:00:00"), at("2026-11-13T00:00:00"))


def test_a_machine_that_slept_through_three_firings_finds_them_and_its_own() -> None:
    nightly = Schedule(cron="0 2 * * *")
    found = unanswered_firings(
        nightly, last_ns=at("2026-11-16T02:00:07"), now_ns=at("2026-11-20T02:00:03")
    )
    assert found == tuple(at(f"2026-11-{day}T02:00:00") for day in (17, 18, 19, 20))


def test_a_new_job_answers_for_the_last_firing_of_the_last_hour_alone() -> None:
    minutely = Schedule(cron="*/10 * * * *")
    assert unanswered_firings(minutely, last_ns=None, now_ns=at("2026-11-20T02:25:00")) == (
        at("2026-11-20T02:20:00"),
    )
    assert (
        unanswered_firings(
            Schedule(cron="0 2 * * *"), last_ns=None, now_ns=at("2026-11-20T03:25:00")
        )
        == ()
    )


def test_a_year_of_minutes_is_counted_up_to_a_bound() -> None:
    found = firings_between(
        Schedule(cron="* * * * *"), at("2025-11-20T00:00:00"), at("2026-11-20T00:00:00")
    )
    assert (len(found), found[-1]) == (COUNTED, at("2026-11-20T00:00:00"))


@given(st.text("abcdefghij-", min_size=1), st.floats(0, 3600))
def test_a_stagger_is_always_the_same_and_within_its_bound(job: str, stagger: float) -> None:
    schedule = Schedule(cron="0 2 * * *", stagger_s=stagger)
    first = stagger_s(schedule, job=job, host="a")
    assert 0 <= first <= stagger
    assert stagger_s(schedule, job=job, host="a") == first


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule(cron="0 2 * *"), "expected five fields"),
        (Schedule(cron=f"0 {'9' * 5_000} * * *"), "Exceeds the limit"),
        (Schedule(cron="61 2 * * *"), "Bad minute"),
        (Schedule(cron="0 0 30 2 *"), "Bad day-of-month"),
        (Schedule(cron="0 0 */20 * 1L"), "it never fires"),
        (Schedule(cron="0 2 * * *", time_zone="Mars/Base"), "no time zone 'Mars/Base'"),
        (Schedule(cron="0 2 * * *", stagger_s=-1), "stagger_s must not be negative"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(schedule: Schedule, message: str) -> None:
    with pytest.raises(AgentloadError, match=message):
        check(schedule, where="x")


@pytest.mark.parametrize(
    ("cron", "zone", "day", "hours"),
    [
        ("30 2 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),  # there is no 02:30 that night
        ("30 2 * * *", BERLIN, "2026-10-25", ["02:30+02:00"]),  # there are two
        ("0 3 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),
        ("*/30 2 * * *", BERLIN, "2026-03-28", ["02:00+01:00", "02:30+01:00"]),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-04",
            ["02:30+11:00"],
        ),  # half an hour is left out
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["01:45+11:00"]),  # and comes twice
        (
            "0 0 * * *",
            "America/Havana",
            "2026-03-08",
            ["01:00-04:00"],
        ),  # the clocks change at midnight
    ],
)
def test_a_nightly_firing_comes_once_on_the_night_of_a_change(
    cron: str, zone: str, day: str, hours: list[str]
) -> None:
    begin = at(f"{day}T00:00:00", zone) - 1
    found = firings_between(Schedule(cron=cron, time_zone=zone), begin, begin + 22 * 3600 * SECOND)
    shown = [
        datetime.fromtimestamp(each / SECOND, ZoneInfo(zone)).isoformat(timespec="minutes")[11:]
        for each in found
    ]
    assert shown == hours


@pytest.mark.parametrize(
    ("day", "count"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-20", 24)]
)
def test_an_hourly_firing_comes_every_hour_that_there_is(day: str, count: int) -> None:
    begin = at(f"{day}T00:00:00", BERLIN) - 1
    found = firings_between(
        Schedule(cron="0 * * * *", time_zone=BERLIN), begin, begin + count * 3600 * SECOND
    )
    assert len(found) == count
    assert {later - earlier for earlier, later in pairwise(found)} == {3600 * SECOND}
