from advisor.policy import Policy
from agentload.report.document import document
from agentload.report.formats.txt import text
from tests.report import sample
from tests.report.golden import assert_golden


def test_the_first_screen_on_a_terminal_is_as_it_was_looked_at() -> None:
    assert_golden("decision.txt", text(document(sample.decision(), sample.evidence(), sample.facts(), policy=Policy())))
