import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from agentload.report.charts.spec import Chart, Lanes
from agentload.report.formats.html import html, placement, sides, tie
from agentload.report.labels import slug
from agentload.report.parts import Group, Step, in_grey, table
from tests.report import sample
from tests.report.charts.test_draw import MAP, PLOT
from tests.report.golden import assert_golden
from tests.report.telling import made, told

VOID = {"meta", "link", "br", "img", "input"}


class Tree(HTMLParser):
    """Check that what is opened is closed, and collect ids, links and loads."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                (self.links if tag == "a" else self.loads).append(value or "")
            elif name in ("src", "srcset", "action", "data"):
                self.loads.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Tree:
    tree = Tree()
    tree.feed(page)
    tree.close()
    return tree


def test_a_report_in_html_is_as_it_was_looked_at() -> None:
    small = replace(told(), groups=(Group(title="Latency", charts=(PLOT, MAP), note="A note."),))
    assert_golden("decision.html", html(small))


def test_a_page_is_whole_loads_nothing_and_links_only_within_itself() -> None:
    tree = parsed(html(told()))
    assert tree.open == []
    assert len(set(tree.ids)) == len(tree.ids)
    assert {link.removeprefix("#") for link in tree.links if not link.startswith("data:")} <= set(
        tree.ids
    )
    assert all(load.startswith("data:") for load in tree.loads)


def test_a_command_that_settles_a_finding_is_called_the_next_step() -> None:
    found = told().findings[0]
    bare = replace(
        told(),
        findings=(replace(found, next=Step(text="", command="agentload sweep")),),
        verdicts=(),
        do_now=(),
        commands=(),
    )
    assert "<strong>Next:</strong>" in html(bare).partition("<span>sweep")[0]


def test_a_single_class_is_drawn_in_the_table_alone_where_there_is_room() -> None:
    evidence = sample.evidence()
    one = made(evidence=replace(evidence, workloads=evidence.workloads[:1]))
    first, *others = one.groups
    (lanes,) = first.charts
    assert isinstance(lanes, Lanes)
    of_one = replace(first, charts=(replace(lanes, arms=lanes.arms[:1]),))
    page = html(replace(one, groups=(of_one, *others)))
    assert '<section class="narrow" id="differences' in page
    assert '<a class="narrow" href="#differences' in page
    assert '<section id="differences' in html(told())


def test_the_differences_of_several_arms_are_drawn_first_below_the_decision() -> None:
    """The columns of two arms leave the rows no room for a picture, which was cut there."""
    decision, _, below = html(told()).partition("<nav")
    assert "svg" not in decision.partition("<main>")[2]
    drawn = re.findall(r'aria-labelledby="([\w-]+)-title', below)
    assert (drawn[0], drawn.count("differences")) == ("differences", 1)


def test_figures_stand_at_the_right_where_none_of_them_counts() -> None:
    """A failed check turns a column grey; what it holds is still compared digit by digit."""
    grey = table(
        "of an invalid run",
        ("", "change", "why"),
        [
            ("turn latency", in_grey("+26.5% [+19.5, +33.7], not valid"), in_grey("client late")),
            ("output tokens/s", in_grey("−21%, not valid"), in_grey("client late")),
            ("verdict", in_grey("test further"), in_grey("3 more runs")),
        ],
    )
    assert sides(grey) == ("words", "figure", "words")


def test_a_hostile_name_stays_text() -> None:
    evil = '<img src=x onerror="alert(1)">'
    page = html(
        replace(
            told(),
            model=evil,
            headline=evil,
            do_now=(Step(text=evil, command=evil),),
            arms=replace(told().arms, title=evil),
        )
    )
    assert "<img" not in page
    assert parsed(page).open == []


def test_the_policy_allows_our_own_script_only() -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html(told()))
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;; img-src data:; ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("−6.0% [−7.9, −4.1]", "−6.0% [−7.9,\u00a0−4.1]"),
        ("340 ms [321, 362]", "340\u00a0ms [321,\u00a0362]"),
        ("use, canary first", "use, canary first"),
        ("FP8, fit at batch 8", "FP8, fit at batch 8"),
        ("−6% (at most −2)", "−6% (at most −2)"),
    ],
)
def test_a_number_stays_with_its_unit_and_an_interval_in_one_piece(
    words: str, expected: str
) -> None:
    assert tie(words) == expected


@pytest.mark.parametrize(
    ("charts", "tables", "abreast", "css"),
    [
        ((PLOT,), (4,), True, ""),
        ((PLOT,), (4, 5), False, ""),  # a wide table leaves a chart no room
        ((PLOT, MAP), (4,), False, ""),
        ((PLOT,), (), False, ""),
        ((), (4,), False, ""),
    ],
)
def test_one_chart_stands_beside_tables_that_leave_it_room(
    charts: tuple[Chart, ...],
    tables: tuple[int, ...],
    abreast: bool,  # noqa: FBT001  # a case
    css: str,
) -> None:
    made = [table("T", ("a",) * columns, [("1",) * columns]) for columns in tables]
    found = placement(Group(title="A b", charts=charts, tables=tuple(made)), None, None)
    assert (found.anchor, found.is_abreast, found.css) == (slug("A b"), abreast, css)
    assert found.charts == tuple((chart, "") for chart in charts)


def test_what_stands_by_the_decision_is_shown_again_on_a_narrow_screen_only() -> None:
    found = placement(Group(title="Differences", charts=(PLOT, MAP)), MAP, PLOT)
    assert (found.charts, found.css) == (((PLOT, "narrow"),), "narrow")
    beside = placement(Group(title="Load", charts=(MAP,), tables=()), MAP, None)
    assert (beside.charts, beside.css) == ((), "narrow")
