"""Requests drawn from client tables have the tables' rates, burstiness and lengths."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agentload.errors import TraceError
from agentload.model.trace import Segment, Session
from tests.importers.importing import imported

DATASET = {
    "0": {
        "input_tokens": "{50: 0.25, 70: 0.75}",
        "output_tokens": "{10: 1.0}",
        "reason_ratio": "{0.4: 1.0}",
    },
    "1200": {"input_tokens": "{900: 1.0}", "output_tokens": "{10: 1.0}"},
}


def table(rate: float, family: str, shape: float, windows: int) -> str:
    rows = [f"{600 * number},{rate},9,{family},{shape},1" for number in range(windows)]
    return "\n".join([*rows, f"{600 * windows},0,0,,0,0"]) + "\n"


def drawn(folder: Path, trace: str, dataset: object = DATASET, **options: Any) -> list[Session]:
    files = {
        "chunk-3-trace.csv": trace,
        "chunk-3-dataset.json": msgspec.json.encode(dataset).decode(),
    }
    return imported(folder, files, "servegen", **options)[0]


@pytest.mark.parametrize(
    ("family", "shape", "cv"),
    [("Gamma", 1.0, 1.0), ("Gamma", 0.04, 5.0), ("Weibull", 0.5, math.sqrt(5))],
)
def test_the_rate_is_the_tables_however_bursty_the_arrivals(
    tmp_path: Path, family: str, shape: float, cv: float
) -> None:
    """Counts of a renewal process: the mean is rate x
    time exactly, its spread is CV x sqrt(rate x time).
    """
    sessions = drawn(tmp_path, table(0.5, family, shape, 20), duration_s=12_000, seed=4)
    expected = 0.5 * 12_000
    assert abs(len(sessions) - expected) < 4 * cv * math.sqrt(expected)
    gaps = np.array(
        [
            later.start_s - earlier.start_s
            for earlier, later in pairwise(sessions)
            if earlier.start_s is not None and later.start_s is not None
        ]
    )
    assert abs(gaps.std() / gaps.mean() / cv - 1) < 0.15


def test_lengths_are_the_windows_own(tmp_path: Path) -> None:
    sessions = drawn(tmp_path, table(1.0, "Gamma", 1.0, 4), duration_s=2_400)
    early = [
        session for session in sessions if session.start_s is not None and session.start_s < 1_200
    ]
    late = sessions[len(early) :]
    share = sum(session.turns[0].add[0].tokens == 50 for session in early) / len(early)
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / len(early))
    assert {session.turns[0].thinking for session in early} == {4}
    assert {(session.turns[0].add[0].tokens, session.turns[0].thinking) for session in late} == {
        (900, None)
    }


def test_equal_seeds_draw_equal_requests_and_a_part_of_the_time_can_be_drawn(
    tmp_path: Path,
) -> None:
    trace = table(1.0, "Gamma", 0.5, 4)
    assert (
        drawn(tmp_path, trace, seed=1)
        == drawn(tmp_path, trace, seed=1)
        != drawn(tmp_path, trace, seed=2)
    )
    part = drawn(tmp_path, trace, from_s=1_300, duration_s=60, rate_scale=10)
    assert 300 < len(part) < 900
    assert all(session.start_s is not None and 0 <= session.start_s < 60 for session in part)


def test_images_cost_about_the_tokens_that_were_drawn(tmp_path: Path) -> None:
    dataset = {
        "0": {
            "text_tokens": "{50: 1.0}",
            "image_tokens": "{252: 1.0}",
            "image_count": "{2: 1.0}",
            "output_tokens": "{9: 1.0}",
        }
    }
    (session, *_) = drawn(tmp_path, table(1.0, "Gamma", 1.0, 1), dataset, system=20)
    first, *images, last = session.turns[0].add
    assert (first, last) == (
        Segment(role="system", tokens=20, key="system"),
        Segment(role="user", tokens=30, key="s0"),
    )
    assert [(image.role, abs(image.tokens - 252) < 10) for image in images] == [("image", True)] * 2


def test_a_client_without_distributions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the client's distributions are missing"):
        imported(tmp_path, {"chunk-3-trace.csv": table(1.0, "Gamma", 1.0, 1)}, "servegen")


@pytest.mark.parametrize("rate", ["1e15", "1e300"])
def test_a_table_of_more_requests_than_anybody_plays_is_refused_at_once(
    tmp_path: Path, rate: str
) -> None:
    with pytest.raises(TraceError, match="requests, at most 10,000,000 are drawn"):
        drawn(tmp_path, f"0,{rate},1,Gamma,1,1\n")


@pytest.mark.parametrize(
    "cells",
    [
        "0,inf,1,Gamma,1,1",
        "nan,1,1,Gamma,1,1",
        "0,1,1,Gamma,1e-300,1",
        "0,1,1,Weibull,1e-9,1",
        "0,1,1,Weibull,inf,1",
    ],
)
def test_a_window_that_is_no_distribution_is_skipped(tmp_path: Path, cells: str) -> None:
    with pytest.raises(TraceError, match=r"no session of .*: 1 × not a window"):
        drawn(tmp_path, f"{cells}\n", tolerance="lenient")


def test_tables_of_what_is_no_number_of_tokens_are_left_out(tmp_path: Path) -> None:
    odd = {
        "input_tokens": "{1e400: 1.0}",
        "output_tokens": "{10: 1e400}",
        "image_count": "{1000000000: 1.0}",
    }
    (session, *_) = drawn(tmp_path, "0,1,1,Gamma,1,1\n", {"0": odd, "soon": odd}, duration_s=5)
    assert (session.turns[0].output, len(session.turns[0].add)) == (1, 1001)
