"""What broke a reader once, and every text that the search starts from, is read or refused."""

import signal
from collections.abc import Iterator
from random import Random

import pytest

from tools.fuzz import CORPUS, mutated
from tools.fuzz_targets import TARGETS

FOUND = [(path.parent.name, path.name) for path in sorted(CORPUS.glob("*/*"))]


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    signal.alarm(60)  # what hangs ends the tests, with its name
    yield
    signal.alarm(0)


@pytest.mark.parametrize(("target", "name"), FOUND, ids=["-".join(each) for each in FOUND])
def test_what_broke_a_reader_breaks_none(target: str, name: str) -> None:
    TARGETS[target].one((CORPUS / target / name).read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_search_starts_from_is_read_and_what_becomes_of_it_as_well(target: str) -> None:
    seeds, rng = list(TARGETS[target].seeds()), Random(target)
    assert seeds
    for text in (*seeds, b"", *(mutated(rng, seeds) for _ in range(5))):
        TARGETS[target].one(text)
