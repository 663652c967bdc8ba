"""A few questions before speed is refined: what
is broken, or the same, ends in the first minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.decision.answers import question_order
from agentload.decision.canary import NO_CANARY, Canary, canary_lengths
from agentload.decision.forecast import shown_broken
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import ITEMS, Look
from agentload.decision.means import Means
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.decision.user_trace import UserTrace
from agentload.model.rows import AnswerRow, ProbeRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.report.render import render
from agentload.run.audience import Audience
from agentload.run.past import asked_of
from agentload.run.place import StudyPlace
from agentload.run.questions import asking_of, catalog_questions
from agentload.store.loader import rewrite
from agentload.study.kinds import Ask, Decide
from agentload.study.parts import TraceRef, Virtual
from agentload.tracefile.files import write

ARMS = ("bf16", "fp8")
CHAT = (TraceRef(path="chat"),)
SHIPPED = Path("profiles/llama-3.1-8b-h100.yaml")
SHORT = (
    "- {task: niah, percent: 100.0, context_tokens: 1000, source: assumed, note: a fact in a "
    "short prompt is found}"
)
ROWS = f"""      {SHORT}
      - {{task: niah, percent: 89.2, context_tokens: 128000, source: blog}}
"""


def score(percent: float, context_tokens: int, more: str = "") -> str:
    return (
        f"      - {{task: niah, percent: {percent}, context_tokens: {context_tokens}, source: "
        f"assumed{more}}}\n"
    )


def test_a_canary_asks_at_each_length_once() -> None:
    assert canary_lengths((8_192, 16_384, 18_944)) == (18_944, 16_384, 8_192)
    assert canary_lengths((32_768, 65_536, 101_376)) == (101_376, 88_064, 65_536)
    assert canary_lengths((16_384,)) == (16_384, 14_336)


NEVER = score(0.0, 1000)
ABOVE_105K = score(100.0, 1000) + score(93.0, 105_000) + score(0.0, 105_001)
AT_ONE_DEPTH = ROWS + score(0.0, 1000, ", depth: [0.3, 0.45]")


def planted(folder: Path, rows: str, *, faster: bool = True) -> str:
    """Return a profile whose FP8 arm answers as these rows say, and is a fifth faster."""
    text = SHIPPED.read_text(encoding="utf-8")
    assert text.count(ROWS) == 1
    if faster:
        slow, fast = (
            "decode_ms: 6.58, decode_ms_per_token: 2.37e-5",
            "decode_ms: 5.0, decode_ms_per_token: 2.0e-5",
        )
        assert text.count(slow) == 1
        text = text.replace(slow, fast)
    path = folder / "planted.yaml"
    path.write_text(text.replace(ROWS, rows), encoding="utf-8")
    return str(path)


def deciding(
    folder: Path, profile: str, *, arms: tuple[str, ...] = ARMS, until: str = "never"
) -> tuple[DecisionOutcome, list[str]]:
    """Decide, and stop where a question begins so."""
    said: list[str] = []

    def notice(text: str) -> None:
        said.append(text)
        if text.startswith(f"asking: {until}"):
            raise KeyboardInterrupt

    study = Decide(traces=CHAT, servers=Virtual(profile=profile, arms=arms))
    return Deciding(
        study=study,
        place=StudyPlace(database=folder / "x.duckdb"),
        audience=Audience(notice=notice),
    ).play(), said


def canary_of(folder: Path, budget_s: float) -> Canary:
    study = Decide(
        traces=CHAT, servers=Virtual(profile="llama-3.1-8b-h100", arms=ARMS), budget_s=budget_s
    )
    place = StudyPlace(database=folder / "x.duckdb")
    user = UserTrace(study)
    return Canary(means=Means(study=study, place=place, audience=Audience(), run="r", user=user))


@pytest.mark.parametrize(
    ("minutes", "stage"),
    [
        (45, Look(criterion="canary", amount=36, lengths=(116_736, 101_376, 65_536))),
        (20, Look(criterion="canary", amount=24, lengths=(116_736, 101_376, 65_536))),
        (12, Look(criterion="canary", amount=12, lengths=(116_736,))),
        (9, None),
    ],
)
def test_a_canary_shrinks_to_a_twentieth_of_the_budget_or_is_left_out(
    tmp_path: Path, minutes: float, stage: Look | None
) -> None:
    canary = canary_of(tmp_path, 60 * minutes)
    assert canary.look == stage
    assert stage is None or canary._price(stage).minutes <= minutes / 20


def test_what_does_not_fit_is_said_where_checks_are(tmp_path: Path) -> None:
    study = Decide(
        traces=CHAT, servers=Virtual(profile="llama-3.1-8b-h100", arms=ARMS), budget_s=540.0
    )
    made = Deciding(
        study=study, place=StudyPlace(database=tmp_path / "x.duckdb"), audience=Audience()
    )
    assert made._agenda.of["checks"].said(made.known).endswith(NO_CANARY)
    assert "canary" not in [each.criterion for each in made.forecast()]


def test_a_canary_asks_at_all_depths_and_what_accuracy_asks_later(tmp_path: Path) -> None:
    canary = canary_of(tmp_path, 2700.0)
    assert canary.look is not None
    order = canary.order(canary.look)
    assert len(order) == canary.look.amount
    depths: dict[tuple[str, int, str, int], set[float | None]] = {}
    for question in order:
        depths.setdefault(question.behind, set()).add(question.depth)
    assert {frozenset(each) for each in depths.values()} == {
        frozenset({0.125, 0.375, 0.625, 0.875})
    }
    assert len([each for each in depths if each[1] == 116_736]) == 5
    later = Ask(
        servers=canary.means.study.servers, contexts=(8192, 65_536, 101_376, 116_736), per_context=4
    )
    asked = question_order(later, ITEMS[4], StudyPlace(database=tmp_path / "none.duckdb"))
    assert {*map(asked_of, order)} <= {*map(asked_of, asked)}


@pytest.mark.parametrize("tokens", [60, 900, 1500, 3000, 5000])
def test_contexts_of_any_length_have_room_for_their_questions(tmp_path: Path, tokens: int) -> None:
    turn = Turn(add=(Segment(role="user", tokens=tokens, key="k"),), output=8)
    write(
        tmp_path / "t.jsonl",
        Trace(
            header=Header(name="t", seed=1),
            sessions=(Session(session="s", workload="chat", start_s=0.0, turns=(turn,)),),
        ),
    )
    study = Decide(
        traces=(TraceRef(path=str(tmp_path / "t.jsonl")),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=ARMS),
    )
    place = StudyPlace(database=tmp_path / "x.duckdb")
    means = Means(study=study, place=place, audience=Audience(), run="r", user=UserTrace(study))
    canary = Canary(means=means)
    assert canary.look is not None
    first = Ask(servers=study.servers, contexts=means.lengths, per_context=means.together, items=80)
    for asked, order in (
        (means.questions(canary.look), canary.order(canary.look)),
        (first, catalog_questions(asking_of(first)).order),
    ):
        made = catalog_questions(asking_of(asked))
        assert all(made.item(question) for question in order)


def test_answers_of_one_arm_alone_are_said_to_compare_with_nothing(tmp_path: Path) -> None:
    canary = canary_of(tmp_path, 2700.0)
    row = ProbeRow(run_id="r", arm="", probe="canary", at_ns=0, settings="{}", outcome="asked")
    rewrite([row], tmp_path / "x.duckdb", run_id="r", name="canary")
    said = canary.said(Known(ledger=Ledger(database=tmp_path / "x.duckdb", run="r")))
    assert said == "no question was answered by both bf16 and another arm"


@pytest.mark.parametrize(
    ("lengths", "answers"), [((8_192, 16_384), "unweighted answers"), ((8_192,), "answers")]
)
def test_answers_of_several_lengths_are_counted_unweighted_and_said_to_be_so(
    tmp_path: Path, lengths: tuple[int, ...], answers: str
) -> None:
    """The table weighs each length by the user's calls of that length."""
    canary = canary_of(tmp_path, 2700.0)
    row = ProbeRow(run_id="r", arm="", probe="canary", at_ns=0, settings="{}", outcome="asked")
    graded = [
        AnswerRow(
            run_id="r",
            arm=arm,
            task="needle",
            item=str(item),
            context_tokens=length,
            depth=None,
            repetition=0,
            score=float(item > 0),
            right=item > 0,
            answer=None,
        )
        for arm in ARMS
        for length in lengths
        for item in range(12)
    ]
    rewrite([row, *graded], tmp_path / "x.duckdb", run_id="r", name="canary")
    said = canary.said(Known(ledger=Ledger(database=tmp_path / "x.duckdb", run="r")))
    right, asked = 11 * len(lengths), 12 * len(lengths)
    assert said == f"bf16 has {right} of {asked} {answers} right, fp8 {right} of {asked}"


def test_a_forecast_says_how_likely_a_broken_arm_is_found() -> None:
    assert [round(shown_broken(questions), 2) for questions in (12, 24, 36)] == [0.74, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            NEVER,
            (
                "fp8 is broken at every length asked: 0 of 36 right at 64k to 114k where bf16 "
                "has 34 of 36."
            ),
        ),
        (ABOVE_105K, "fp8 is broken above 99k: 0 of 20 right at 114k where bf16 has 18 of 20."),
    ],
)
def test_a_broken_arm_ends_in_the_first_minutes(tmp_path: Path, rows: str, says: str) -> None:
    outcome, _ = deciding(tmp_path, planted(tmp_path, rows))
    assert outcome.document is not None
    (verdict,) = outcome.document.decision.server
    assert (outcome.ending, verdict.verdict, verdict.reason) == ("decided", "avoid", says)
    assert [each.stage.criterion for each in outcome.asked] == ["checks", "speed", "canary"]
    assert sum(each.minutes for each in outcome.asked) < 5
    assert outcome.asked[-1].said.endswith(says)
    assert "calibrat" not in render(outcome.document, "txt")


@pytest.mark.slow
def test_an_arm_that_fails_at_one_depth_is_never_used(tmp_path: Path) -> None:
    outcome, _ = deciding(tmp_path, planted(tmp_path, AT_ONE_DEPTH))
    assert outcome.document is not None
    (verdict,) = outcome.document.decision.server
    assert verdict.verdict == "avoid"
    assert "at 38% of the context: 0 of " in verdict.reason


@pytest.mark.slow
def test_servers_that_are_the_same_are_told_within_minutes(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    first, second = text.index("  bf16:\n"), text.index("  fp8:\n")
    twin = text[first:second].replace("  bf16:\n", "  other:\n")
    profile = tmp_path / "twins.yaml"
    profile.write_text(text[:second] + twin + text[second:], encoding="utf-8")
    outcome, _ = deciding(tmp_path, str(profile), arms=("bf16", "other"))
    assert outcome.document is not None
    (verdict,) = outcome.document.decision.server
    assert (outcome.ending, verdict.verdict) == ("decided", "no difference")
    assert "say that they are the same configuration" in verdict.reason
    assert "of 36 answers are alike" in verdict.reason
    assert sum(each.minutes for each in outcome.asked) < 5


@pytest.mark.slow
def test_other_arms_go_on_where_one_is_broken(tmp_path: Path) -> None:
    text = Path(planted(tmp_path, NEVER)).read_text(encoding="utf-8")
    whole = SHIPPED.read_text(encoding="utf-8")
    sound = whole[whole.index("  fp8:\n") :].replace("  fp8:\n", "  sound:\n")
    profile = tmp_path / "three.yaml"
    profile.write_text(text + sound, encoding="utf-8")
    outcome, said = deciding(tmp_path, str(profile), arms=(*ARMS, "sound"), until="speed, 4")
    assert outcome.document is not None
    assert {each.arm: each.verdict for each in outcome.document.decision.server} == {
        "fp8": "avoid",
        "sound": "test further",
    }
    assert any("fp8 is broken at every length asked" in line for line in said)


@pytest.mark.slow
def test_nothing_follows_where_the_reference_cannot_answer_either(tmp_path: Path) -> None:
    text = Path(planted(tmp_path, NEVER)).read_text(encoding="utf-8")
    reference = (
        f"{SHORT}\n      - {{task: niah, percent: 91.2, context_tokens: 128000, source: blog}}\n"
    )
    assert text.count(reference) == 1
    profile = tmp_path / "random.yaml"
    profile.write_text(text.replace(reference, NEVER.lstrip()), encoding="utf-8")
    outcome, said = deciding(tmp_path, str(profile), until="speed, 4")
    assert any(
        line.endswith("bf16 cannot answer such questions, so nothing follows") for line in said
    )
    assert outcome.document is not None
    assert outcome.document.decision.server[0].verdict == "test further"
