"""A line holds one idea, and a function few ways and parameters, but for those on the list."""

from tools.house import HOUSE, Part
from tools.lists import REMAKE, lists, missing, read

WRITTEN = read(HOUSE, "density")


def test_no_room_has_dense_lines_and_no_function_many_ways_or_parameters(whole: Part) -> None:
    assert missing(lists(whole)["density"], WRITTEN) == {}


def test_what_has_become_plain_is_taken_off_the_list(whole: Part) -> None:
    assert missing(WRITTEN, lists(whole)["density"]) == {}, REMAKE
