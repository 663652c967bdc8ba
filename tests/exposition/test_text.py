from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agentload.exposition.scrape import WANTED
from agentload.exposition.text import (
    MOST_CHARACTERS,
    MOST_LABELS,
    MOST_OF_A_LINE,
    MetricSample,
    OversizeError,
    samples,
)

PAGES = sorted((Path(__file__).parent / "pages").iterdir())
GAUGE = "vllm:num_requests_running"
PAGE = 1 << 22
LONG = 50 * "x"


def line_with(*labels: str) -> str:
    return f"{GAUGE}{{{','.join(labels)}}} 1\n"


def of_library(text: str) -> list[MetricSample]:
    families = text_string_to_metric_families(text)
    return [
        MetricSample(each.name, each.labels, each.value)
        for family in families
        for each in family.samples
        if each.name in WANTED
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_servers_pages_are_read_as_the_library_reads_them(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(samples(text, WANTED)) == of_library(text) != []


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), st.floats()), max_size=5)
)
def test_any_label_and_value_that_the_library_writes_is_read_as_it_reads_them(
    rows: list[tuple[str, float]],
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge(GAUGE, "what runs", ["model", "engine"], registry=registry)
    Counter("vllm:num_preemptions", "of all", registry=registry).inc(3)
    Gauge("other:gauge", "nobody's", ["a"], registry=registry).labels(a='"\\').set(1)
    for model, value in rows:
        gauge.labels(model=model, engine="0").set(value)
    text = generate_latest(registry).decode()
    assert [repr(each) for each in samples(text, WANTED)] == [
        repr(each) for each in of_library(text)
    ]


def test_blanks_are_no_part_of_a_line() -> None:
    text = f"  # TYPE x gauge\n \t\n  {GAUGE}{{ }} 5\r\n"
    assert list(samples(text, WANTED)) == [MetricSample(GAUGE, {}, 5.0)] == of_library(text)


def test_a_counter_has_its_suffix_where_the_page_leaves_it_out() -> None:
    text = '# TYPE tgi_request_success counter\ntgi_request_success{method="a"} 4\n'
    assert (
        list(samples(text, WANTED))
        == [MetricSample("tgi_request_success_total", {"method": "a"}, 4.0)]
        == of_library(text)
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{GAUGE}",
        f"{GAUGE}{{",
        f'{GAUGE}{{engine="0"',
        f'{GAUGE}{{engine="0"}}',
        f"{GAUGE}{{engine=0}} 1",
        f"{GAUGE} one",
        f"{GAUGE} 1_000",
        "other:gauge",
        "<html>",
        "{",
    ],
)
def test_half_a_line_and_another_page_are_no_metrics(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(samples(f"{GAUGE} 1\n{text}", WANTED))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n" * (MOST_CHARACTERS + 1), "more than 16 MB"),
        (line_with('a="' + "x" * MOST_OF_A_LINE + '"'), "a line of more than 64 kB"),
        (
            line_with(*(f'l{number}="x"' for number in range(MOST_LABELS + 1))),
            "more than 1,000 labels",
        ),
    ],
)
def test_what_no_server_writes_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(OversizeError, match=said):
        list(samples(text, WANTED))


@pytest.mark.parametrize(
    "line",
    [
        line_with(*(f'l{number}="{LONG}"' for number in range(900))),
        line_with('a="' + '\\"' * 30_000 + '"'),
        "other:gauge " * 5_000 + "1\n",
        "# TYPE " + " " * 60_000 + "\n",
    ],
    ids=["labels", "escapes", "words", "spaces"],
)
def test_reading_takes_as_long_as_a_page_is_however_it_is_filled(line: str) -> None:
    """A parser whose time grows with the square of
    a line's length would not end within a minute.
    """
    assert len(line) <= MOST_OF_A_LINE
    number = PAGE // len(line)
    assert len(list(samples(line * number, WANTED))) == (number if line.startswith(GAUGE) else 0)
