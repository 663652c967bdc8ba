from agentload.report.formats.txt import text
from tests.report.golden import assert_golden
from tests.report.telling import told


def test_the_first_screen_on_a_terminal_is_as_it_was_looked_at() -> None:
    assert_golden("decision.txt", text(told()))
