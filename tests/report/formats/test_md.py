import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agentload.report.formats.md import escape, markdown
from agentload.report.parts import Cell, Table
from tests.report.golden import assert_golden
from tests.report.telling import told


def test_a_report_in_markdown_is_as_it_was_looked_at() -> None:
    assert_golden("decision.md", markdown(told()))


def test_every_section_begins_a_line_and_every_table_is_one() -> None:
    lines = markdown(told()).splitlines()
    assert {f"## {group.title}" for group in told().groups} <= set(lines)
    assert sum(line.startswith("| --- ") for line in lines) == 1 + 2 + 2 + sum(
        len(group.tables) for group in told().groups
    )


def test_a_report_without_classes_findings_or_canary_has_no_empty_sections() -> None:
    bare = replace(
        told(), findings=(), rollout=None, roll_back="", groups=(), no_difference=(), asides=()
    )
    text = markdown(bare)
    assert "\n\n\n" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Verdicts",
        "## Checks",
        "## How to reproduce",
    ]


NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])
    | st.sampled_from("|*_`<>[]()\\\n#~"),
    min_size=1,
    max_size=30,
)


@given(NAMES)
def test_no_name_breaks_a_table(name: str) -> None:
    table = Table(
        title="t", columns=("", name), rows=((Cell(text=name), Cell(text=name, tone="strong")),)
    )
    text = markdown(replace(told(), arms=table, groups=()))
    lines = text.split("\n")
    start = lines.index("| --- | --- |")
    rows = [lines[start - 1], lines[start], lines[start + 1]]
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows] == [3, 3, 3]


def test_a_name_is_shown_as_it_is() -> None:
    assert escape("a*b_c <d> [e](f) `g` _h_") == r"a\*b_c \<d> [e\](f) \`g\` \_h\_"
