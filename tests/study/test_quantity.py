from __future__ import annotations

import pytest

from agentload.errors import UsageError
from agentload.study.parts import Slo
from agentload.study.quantity import LIMITS, factors, lengths, number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1k..8k", (1024, 2048, 4096, 8192)),
        ("4k..10k", (4096, 8192, 10240)),
        ("512..512", (512,)),
        ("4k, 100,1K", (100, 1024, 4096)),
        ("4k..16k,100k", (4096, 8192, 16384, 102400)),
        ("1.5k", (1536,)),
        ("1m", (1048576,)),
        ("8k..8k, 4k .. 8k", (4096, 8192)),
    ],
)
def test_lengths_double_between_dots_and_stand_alone_otherwise(
    text: str, found: tuple[int, ...]
) -> None:
    assert lengths(text, option="--contexts") == found


@pytest.mark.parametrize("text", ["", "4k..", "x", "8k..4k", "0", "-1", "99m", "1k,,2k", "1..2..3"])
def test_what_is_no_length_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--contexts"):
        lengths(text, option="--contexts")


def test_a_length_may_be_too_short_for_what_it_is_for() -> None:
    assert lengths("1..2k", option="--contexts")[0] == 1
    with pytest.raises(UsageError, match="'1' is no length of 64 to"):
        lengths("1..2k", option="--contexts", least=64)


def test_machines_are_named_with_how_slow_they_are() -> None:
    assert factors("m1,m2=1.08", "--machines") == {"m1": 1.0, "m2": 1.08}
    for text in ("m1=fast", "=1", "m1=0"):
        with pytest.raises(UsageError, match="--machines takes NAME=FACTOR"):
            factors(text, "--machines")


@pytest.mark.parametrize(
    ("limit_ms", "written"),
    [
        (60_000.0, "60s"),
        (1_500.0, "1.5s"),
        (40.0, "40ms"),
        (0.5, "0.5ms"),
        (1_234.567, "1.234567s"),
    ],
)
def test_a_limit_is_written_as_people_write_it_and_reads_back_the_same(
    limit_ms: float, written: str
) -> None:
    assert LIMITS.write(Slo(ttft_ms=limit_ms)) == f"ttft={written}"
    assert LIMITS.read(f"ttft={written}", "--slo") == {"ttft_ms": limit_ms}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("30rpm", "0.5"),
        ("90/min", "1.5"),
        ("30/minute", "0.5"),
        ("30 per minute", "0.5"),
        ("1800/h", "0.5"),
        ("0.5/s", "0.5"),
    ],
)
def test_a_rate_by_the_minute_is_answered_with_the_same_rate_by_the_second(
    typed: str, meant: str
) -> None:
    with pytest.raises(UsageError) as error:
        number(typed, "--rate")
    assert error.value.hint == f"--rate {meant}"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("1k..64", "1k..64k"), ("64k..1k", "1k..64k"), ("64..32", "32..64"), ("8k..4", "4..8k")],
)
def test_a_range_that_ends_before_it_starts_is_answered_with_one_that_does_not(
    typed: str, meant: str
) -> None:
    with pytest.raises(UsageError) as error:
        lengths(typed, "--contexts")
    assert error.value.hint == f"--contexts {meant}"
    assert lengths(meant, "--contexts")
