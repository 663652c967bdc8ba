"""The product is held against figures as they were printed, by a check that can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agentload.model.profile import ArmProfile
from agentload.run.servers import arms_of
from benchmarks.published import FIGURES, Figure, Found, Product, figures, mark

QUICK = frozenset({"auc_recovery", "needle_128k", "pool_ratio", "load_itl_ms", "load_output_tok_s"})
PRINTED = figures()


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Product:
    return Product(tmp_path_factory.mktemp("sweeps"), pairs=2, starts=0)


def test_every_figure_says_where_it_is_printed_and_how_far_off_is_too_far() -> None:
    sources = yaml.safe_load(FIGURES.read_text(encoding="utf-8"))["sources"]
    assert all(each.source in sources and each.place and each.unit for each in PRINTED)
    assert all(0 < each.tolerance <= 0.15 for each in PRINTED)
    assert {each.origin for each in PRINTED} <= {"printed", "inferred", "fitted", "predicted"}
    assert len({(each.what, each.profile, each.arm) for each in PRINTED}) == len(PRINTED)


@pytest.mark.parametrize(
    "figure",
    [each for each in PRINTED if each.what in QUICK],
    ids=lambda each: f"{each.profile} {each.arm} {each.what}",
)
def test_the_product_meets_what_is_printed_and_no_other_figure(
    figure: Figure, product: Product
) -> None:
    found = product.found(figure)
    assert mark(figure, found) == "✓"
    for factor in (1 - 2.5 * figure.tolerance, 1 + 2.5 * figure.tolerance):
        assert mark(replace(figure, value=figure.value * factor), found) == "✗"


def test_a_fit_to_a_profile_that_is_not_as_printed_gets_no_tick(product: Product) -> None:
    gemma = [each for each in PRINTED if each.profile == "gemma-4-e2b-h100"]
    found = {(each.what, each.arm): (product.found(each), each) for each in gemma}
    off, printed = found["ttft_a", "fp8"]
    assert off.value is not None
    assert -0.15 < off.value / printed.value - 1 < -0.12
    assert {key: mark(figure, seen) for key, (seen, figure) in found.items()} == {
        ("slope", "bf16"): "≠",
        ("slope", "fp8"): "≠",
        ("slope", "fp8-skip-sw"): "≠",
        ("ttft_a", "bf16"): "✓",
        ("ttft_a", "fp8"): "≠",
    }
    assert mark(replace(printed, known=None), off) == "✗"
    assert mark(printed, Found(value=printed.value)) == "!"  # a reason that is no longer true


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found(value=100.9), "✓"),
        (Found(value=101.1), "✗"),
        (Found(value=None), "✗"),
        (Found(value=100.0, low=99.0, high=104.0), "✓"),
        (Found(value=100.0, low=102.0, high=104.0), "✗"),  # right without noise, and biased with it
        (Found(value=100.0, low=95.0, high=98.0), "✗"),
    ],
)
def test_a_figure_is_met_without_noise_and_not_denied_with_it(found: Found, said: str) -> None:
    figure = Figure(
        what="slope",
        profile="p",
        arm="a",
        value=100.0,
        unit="ms",
        source="s",
        place="p",
        tolerance=0.01,
        origin="printed",
    )
    assert mark(figure, found) == said


def test_a_profile_quotes_the_load_tests_as_they_are_printed() -> None:
    arms: dict[tuple[str, str], ArmProfile] = {}
    for each in (each for each in PRINTED if each.what.startswith("load_")):
        arm = arms.setdefault((each.profile, each.arm), *arms_of(each.profile, [each.arm]))
        assert [getattr(row, each.what.removeprefix("load_")) for row in arm.load_tests] == [
            each.value
        ]
    assert len(arms) == 5


def test_a_figure_that_is_changed_in_the_list_is_read_as_changed(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        FIGURES.read_text(encoding="utf-8").replace("4.37e-5", "4.47e-5"), encoding="utf-8"
    )
    assert sum(one != two for one, two in zip(figures(other), PRINTED, strict=True)) == 1
