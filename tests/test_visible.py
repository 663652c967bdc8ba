from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from agentload.cli._print import table
from agentload.report.formats import html, md
from agentload.visible import ACTING, visible

WILD = "a\u202eb\x1b[2Jc\ud800"
SEEN = "a\\u202eb\\x1b[2Jc\\ud800"


def test_what_acts_on_a_reader_is_seen_and_does_nothing() -> None:
    assert visible(WILD) == SEEN
    assert (
        visible(" two\tlines\nwith a\N{NO-BREAK SPACE}gap, − and 日本語 ")
        == " two\tlines\nwith a\N{NO-BREAK SPACE}gap, − and 日本語 "
    )


@pytest.mark.slow
def test_no_character_of_a_control_category_passes() -> None:
    passed = {
        chr(code)
        for code in range(sys.maxunicode + 1)
        if not chr(code).isprintable() and not ACTING.match(chr(code))
    }
    assert {char for char in passed if char < "\u0100"} == set("\t\n\xa0")


@pytest.mark.parametrize(
    "shown",
    [
        lambda text: "".join(table(["name"], [[text]])),
        lambda text: md.escape(text).replace("\\\\", "\\").replace("\\[", "["),
        lambda text: html.environment().from_string("{{ text }}").render(text=text),
    ],
    ids=["terminal", "markdown", "page"],
)
def test_every_way_to_show_a_text_shows_its_characters(shown: Callable[[str], str]) -> None:
    assert SEEN in shown(WILD)
