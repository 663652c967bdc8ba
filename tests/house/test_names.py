"""A public class has one home, and no public function
is a bare participle, but for those on the list.
"""

from tools.house import HOUSE, Part
from tools.lists import REMAKE, lists, missing, read

WRITTEN = read(HOUSE, "names")


def test_a_public_class_name_lives_in_one_room_and_no_function_is_a_bare_participle(
    whole: Part,
) -> None:
    assert missing(lists(whole)["names"], WRITTEN) == {}


def test_what_has_found_its_name_is_taken_off_the_list(whole: Part) -> None:
    assert missing(WRITTEN, lists(whole)["names"]) == {}, REMAKE
