import json
from pathlib import Path
from typing import Any

import pytest

from agentload.errors import StoreError
from agentload.evidence.view import run_view
from agentload.model.rows import (
    AnswerRow,
    ArmRow,
    BlockRow,
    CallRow,
    FingerprintRow,
    LegRow,
    Row,
    RunRow,
    SampleRow,
)
from agentload.report.parts import Block, Made, Retrieval, RunFacts, Served, Timeline
from agentload.report.read import facts, origin
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.runs import run_named
from agentload.study.document import json_text
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef

SECOND = 1_000_000_000
NOON = 1_790_000_000 * SECOND

STUDY = Replay(traces=(TraceRef(path="a"), TraceRef(path="b")), servers=Live(endpoints="e"))


def database(folder: Path, *rows: Row) -> Path:
    file = folder / "r.duckdb"
    with Writer(folder / "r.journal") as journal:
        for row in rows:
            journal.append(row)
    load([folder / "r.journal"], file)
    return file


def facts_of(file: Path) -> RunFacts:
    with reading(file) as connection:
        view = run_view(connection, "r")
    return facts(file, view)


def run(name: str, *, created_ns: int = NOON) -> RunRow:
    return RunRow(
        run_id=name,
        kind="measured",
        name="rag",
        created_ns=created_ns,
        trace_name="rag",
        trace_hash="5f2a",
        model="m",
        design="interleaved",
        seed=7,
        version="0.1.0",
        command="agentload replay rag",
        options="{}",
        study=json_text(STUDY),
    )


def leg(number: int, *, wall_ns: int) -> LegRow:
    return LegRow(
        run_id="r",
        leg=number,
        host="load-1",
        boot_id=None,
        monotonic_ns=5 * SECOND,
        wall_ns=wall_ns,
        ended_ns=35 * SECOND,
        status="done",
    )


def sample(
    name: str, second: int, value: float, *, number: int = 1, labels: str | None = None
) -> SampleRow:
    return SampleRow(
        run_id="r",
        leg=number,
        arm="bf16",
        at_ns=(5 + second) * SECOND,
        name=name,
        value=value,
        labels=labels,
    )


def said(arm: str, moment: str, **known: object) -> FingerprintRow:
    return FingerprintRow(
        run_id="r",
        leg=1,
        arm=arm,
        at_ns=1 if moment == "before" else 2,
        moment="before" if moment == "before" else "after",
        round=0,
        facts=json.dumps(known),
    )


def answer(item: int, length: int, depth: float, *, right: bool) -> AnswerRow:
    return AnswerRow(
        run_id="r",
        arm="bf16",
        task="needle",
        item=str(item),
        context_tokens=length,
        depth=depth,
        repetition=0,
        score=None,
        right=right,
        answer=None,
    )


def test_a_run_is_told_as_it_was_stored(tmp_path: Path) -> None:
    file = database(
        tmp_path,
        run("r"),
        leg(1, wall_ns=NOON),
        leg(2, wall_ns=NOON + 100 * SECOND),
        ArmRow(run_id="r", arm="bf16", position=0, url="http://a/v1", model="m", machine="node-a"),
        ArmRow(run_id="r", arm="fp8", position=1, url="http://b/v1", model="m", profile="p/fp8"),
        said("bf16", "before", version="0.33.0", process_start_s=1.0, pool_tokens="100"),
        said(
            "bf16",
            "after",
            version="0.33.0",
            process_start_s=9.0,
            pool_tokens="98",
            attention_backend=None,
        ),
        sample("kv_usage", 0, 0.2, labels='{"engine":"0"}'),
        sample("kv_usage", 0, 0.4, labels='{"engine":"1"}'),
        sample("preemptions", 0, 30.0),
        sample("kv_usage", 10, 0.9),
        sample("preemptions", 10, 34.0),
        sample("kv_usage", 2, 1.0, number=2),
        sample("preemptions", 2, 3.0, number=2),
        sample("running", 2, 3.0, number=2),
        answer(1, 4_096, 0.52, right=True),
        answer(2, 4_096, 0.48, right=False),
        answer(3, 8_192, 0.0, right=True),
    )
    assert facts_of(file) == RunFacts(
        made=Made(
            run="r",
            tool_version="0.1.0",
            name="rag",
            model="m",
            created="2026-09-21",
            traces=("a", "b"),
            trace_hash="5f2a",
            seed=7,
            design="interleaved",
            command="agentload replay rag",
            options=json_text(STUDY),
            database=str(file),
            hosts=("load-1",),
            legs=2,
            minutes=1.0,
            servers=(
                Served(
                    arm="bf16",
                    url="http://a/v1",
                    machine="node-a",
                    fingerprint="287155f36ed3",
                    steady=True,
                ),
                Served(arm="fp8", url="http://b/v1", profile="p/fp8"),
            ),
        ),
        study=STUDY,
        # The second leg begins 100 s later with a server that counts from zero again.
        timelines=(
            Timeline(
                arm="bf16",
                seconds=(0.0, 10.0, 102.0),
                kv_usage=(0.4, 0.9, 1.0),
                preemptions=(0.0, 4.0, 7.0),
                running=(0.0, 0.0, 3.0),
            ),
        ),
        retrieval=(
            Retrieval(
                arm="bf16", task="needle", context_tokens=4_096.0, depth=0.5, right=1, items=2
            ),
            Retrieval(
                arm="bf16", task="needle", context_tokens=8_192.0, depth=0.0, right=1, items=1
            ),
        ),
    )


def call(arm: str, session: str, turn: int, second: int) -> CallRow:
    return CallRow(
        run_id="r",
        leg=1,
        arm=arm,
        block=0,
        pair=0,
        workload="rag",
        session=session,
        turn=turn,
        attempt=0,
        retry_of=None,
        request_id=f"{arm}{session}{turn}",
        due_ns=second * SECOND,
        released_ns=(second + 1) * SECOND,
        first_ns=(second + 2) * SECOND,
        done_ns=(second + 5) * SECOND,
        context_tokens=100,
        asked_tokens=10,
        prompt_tokens=100,
        output_tokens=10,
        status="ok",
    )


def test_blocks_are_placed_in_the_run_and_the_longest_session_of_most_arms_is_followed(
    tmp_path: Path,
) -> None:
    played = tuple(
        BlockRow(
            run_id="r",
            leg=1,
            pair=0,
            block=0,
            arm=arm,
            round=place,
            started_ns=(10 + 100 * place) * SECOND,
            drain_ns=None,
            ended_ns=(40 + 100 * place) * SECOND,
            salt="s",
        )
        for place, arm in enumerate(("bf16", "fp8"))
    )
    arms = tuple(
        ArmRow(run_id="r", arm=arm, position=place, url=None, model="m")
        for place, arm in enumerate(("bf16", "fp8"))
    )
    begins = {"bf16": 10, "fp8": 110}
    short = tuple(call(arm, "short", 0, at) for arm, at in begins.items())
    long = tuple(
        call(arm, "long", turn, at + 7 * turn) for arm, at in begins.items() for turn in range(2)
    )
    alone = tuple(call("bf16", "alone", turn, 10 + turn) for turn in range(5))
    found = facts_of(
        database(tmp_path, run("r"), leg(1, wall_ns=NOON), *arms, *played, *short, *long, *alone)
    )
    assert found.blocks == (
        Block(arm="bf16", pair=0, start_s=0.0, end_s=30.0),
        Block(arm="fp8", pair=0, start_s=100.0, end_s=130.0),
    )
    assert [
        (each.arm, each.turn, each.due_s, each.released_s, each.first_s, each.done_s)
        for each in found.session
    ] == [
        (arm, turn, 7.0 * turn, 7.0 * turn + 1, 7.0 * turn + 2, 7.0 * turn + 5)
        for arm in ("bf16", "fp8")
        for turn in range(2)
    ]


def test_many_lengths_are_gathered_at_powers_of_two(tmp_path: Path) -> None:
    lengths = [4_000 + 37 * index for index in range(12)]
    file = database(
        tmp_path,
        run("r"),
        *(answer(index, length, 0.5, right=True) for index, length in enumerate(lengths)),
    )
    assert facts_of(file).retrieval == (
        Retrieval(arm="bf16", task="needle", context_tokens=4_096.0, depth=0.5, right=12, items=12),
    )


def test_a_changed_identity_is_not_steady_and_a_simulation_has_no_date(tmp_path: Path) -> None:
    arm = ArmRow(run_id="r", arm="bf16", position=0, url=None, model="m")
    file = database(
        tmp_path,
        run("r", created_ns=0),
        arm,
        said("bf16", "before", version="1"),
        said("bf16", "after", version="2"),
    )
    made = facts_of(file).made
    assert (made.servers[0].steady, made.created, made.minutes) == (False, None, None)


def test_an_arm_that_changed_machines_is_named_with_both_and_may_have_another_pool_there(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [
        run("r"),
        ArmRow(run_id="r", arm="bf16", position=0, url="http://a/v1", model="m", machine="left"),
    ]
    for number, (machine, pool) in enumerate((("left", 100), ("right", 99)), start=1):
        rows += [
            leg(number, wall_ns=NOON + number * SECOND),
            *(
                FingerprintRow(
                    run_id="r", leg=number, arm="bf16", at_ns=at, moment="before", round=0, facts=json.dumps({"pool_tokens": pool})
                )
                for at in (6, 7)
            ),
            BlockRow(
                run_id="r", leg=number, pair=number, block=0, arm="bf16", round=number, started_ns=8, drain_ns=None, ended_ns=9,
                salt=f"{number}", machine=machine,
            ),
        ]  # fmt: skip
    (served,) = facts_of(database(tmp_path, *rows)).made.servers
    assert (served.machine, served.steady) == ("left, then right", True)


def test_the_run_that_was_stored_last_is_meant_when_none_is_named(tmp_path: Path) -> None:
    file = database(tmp_path, run("r9"), run("r1"))
    assert (run_named(file, None), run_named(file, "r9")) == ("r1", "r9")
    with pytest.raises(StoreError, match="no run 'r2'") as caught:
        run_named(file, "r2")
    assert caught.value.hint == "runs: r9, r1"


def test_a_run_may_be_named_by_how_it_begins(tmp_path: Path) -> None:
    file = database(tmp_path, run("20261120-0742"), run("20261120-0742-more"), run("20261121-1000"))
    assert (run_named(file, "20261121"), run_named(file, "20261120-0742")) == (
        "20261121-1000",
        "20261120-0742",
    )
    with pytest.raises(StoreError, match="2 runs start with '20261120'") as caught:
        run_named(file, "20261120")
    assert caught.value.hint == "runs: 20261120-0742, 20261120-0742-more"


WEKA = {"importer": "weka", "files": 1}


@pytest.mark.parametrize(
    ("source", "sessions", "words"),
    [
        (WEKA, {"": 131}, "replayed from weka import of 131 sessions"),
        (WEKA, {"": 1}, "replayed from weka import of 1 session"),
        (
            WEKA | {"degraded": {"break": 0.1}},
            {"": 9},
            "replayed from weka import of 9 sessions, degraded",
        ),
        ({"importer": "prometheus"}, {"": 40}, "fitted to a server's metrics"),
        ({"workload": "rag", "options": {"sessions": 120}}, {"": 120}, "synthetic workload rag"),
        (
            {"chat": {"workload": "chat"}, "mine": WEKA},
            {"chat": 4, "mine": 7},
            "synthetic workload chat and replayed from weka import of 7 sessions",
        ),
        ({}, {"": 3}, None),
        ({"name": "by hand"}, {"": 3}, None),
        ({"a": {}, "b": {}}, {"a": 3}, None),
    ],
)
def test_a_trace_is_imported_fitted_synthetic_or_unknown(
    source: dict[str, Any], sessions: dict[str, int], words: str | None
) -> None:
    assert origin(source, sessions) == words
