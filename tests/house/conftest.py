import pytest

from tools.house import HOUSE, Part, measure


@pytest.fixture(scope="session")
def whole() -> Part:
    """Return all shipped modules, measured."""
    return measure(HOUSE)
