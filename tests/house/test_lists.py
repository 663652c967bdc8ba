"""A public class has one home and no public function is a bare participle; a line holds one idea,
and a function few ways and parameters: but for those on the lists.
"""

import pytest

from tools.house import HOUSE, Part
from tools.lists import REMAKE, lists, missing, read


@pytest.fixture(params=["names", "density"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
def test_nothing_is_beyond_a_limit_that_is_not_on_its_list(whole: Part, name: str) -> None:
    assert missing(lists(whole)[name], read(HOUSE, name)) == {}


def test_what_is_mended_is_taken_off_its_list(whole: Part, name: str) -> None:
    assert missing(read(HOUSE, name), lists(whole)[name]) == {}, REMAKE
