"""What tasks take and cost, and up to how many sessions the cache holds."""

from dataclasses import replace

from agentload.report.parts import Document, Table
from tests.report import sample
from tests.report.telling import made, told


def tables(document: Document) -> dict[str, Table]:
    (group,) = (group for group in document.groups if group.title == "Tasks")
    return {each.title: each for each in group.tables}


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in table.rows}


def test_tasks_have_a_row_a_figure_and_a_column_an_arm() -> None:
    table = tables(told())["Tasks, whole server"]
    found = rows(table)
    assert table.columns == ("", "BF16", "FP8", "FP8 skip-SW")
    assert found["task latency, mean"][0] == "74.3 s [71.2, 77.4]"
    assert found["cost of a successful task, USD"][0] == "0.0111 [0.0103, 0.0119]"
    assert found["tasks done, of those played"][0] == "182 of 184"
    assert found["task latency against BF16"][:2] == ("", "−5.5% [−7.7, −3.3]")
    assert "graded" not in table.note


def test_what_is_estimated_not_known_or_not_graded_is_said_with_the_reason() -> None:
    decision = sample.decision()
    first, second, third = decision.tasks
    cut = (
        replace(first, are_whole=False, success=None, ungraded="windows cut tasks"),
        replace(second, are_whole=False, success=None, ungraded="windows cut tasks"),
        replace(third, latency_ms=None, unknown="the end of long tasks was not played"),
    )
    note = tables(made(replace(decision, tasks=cut)))["Tasks, whole server"].note
    assert "Windows cut tasks: latencies are estimated" in note
    assert note.count("Success is not graded: windows cut tasks.") == 1
    assert "No latency of FP8 skip-SW: the end of long tasks was not played." in note


def test_the_cliff_of_the_hit_rate_is_a_line_below_the_rates() -> None:
    table = tables(told())["Cache hit rate by sessions at once"]
    assert rows(table)["24"] == ("71% of 95%", "94% of 95%", "93% of 95%")
    assert table.note.endswith(
        "BF16: the hit rate falls off at 24 sessions, to 71% of a possible 95%; 18 fit."
    )


def test_a_run_without_tasks_or_loads_has_no_such_part() -> None:
    evidence = replace(sample.evidence(), capacity=())
    none = made(replace(sample.decision(), tasks=(), hit_cliffs=()), evidence)
    assert all(group.title != "Tasks" for group in none.groups)
