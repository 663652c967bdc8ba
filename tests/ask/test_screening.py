"""A screen under way: what it asks of whom, where it
ends, and what it keeps, with sources that are made up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from agentload.ask.asker import Failed
from agentload.ask.likely import Likely, Prompt, TokenSource
from agentload.ask.screening import Passage, ScreenRun
from agentload.emulator.logprobs import behind
from agentload.layout.passages import PLACES, ladder, own_passages, places, random_passages
from agentload.model.profile import Logprobs
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.screen import Modelled
from agentload.run.screen import _Writing as Writing
from tests.serve.arms import arm

PLAIN = arm(name="bf16")
LENGTHS = (256, 1024)
SIZES = (1000, 7, 1000, 1, 256)


@dataclass(slots=True)
class Counting:
    """Count what is asked of another source, and fail from some request on."""

    source: TokenSource
    fails_at: int = 1 << 60
    asked: list[int] = field(default_factory=list)

    async def behind(self, prompt: Prompt, *, most: int) -> Likely | Failed:
        self.asked.append(len(prompt))
        return (
            Failed(error="gone")
            if len(self.asked) >= self.fails_at
            else await self.source.behind(prompt, most=most)
        )

    async def within(self, prompt: Prompt, *, most: int) -> tuple[Likely, ...] | Failed:
        return await self.source.within(prompt, most=most)


def source(**said: float) -> Counting:
    return Counting(
        # as given
        Modelled(arm=replace(PLAIN, name=f"arm{said}", logprobs=Logprobs(**said)), seed=0)  # type: ignore[arg-type]
    )


def passages(count: int = 8) -> list[Passage]:
    salted = [
        {salt: [*map(hash, salt * 4), *range(1000 * n, 1000 * n + 1100)] for salt in "abc"}
        for n in range(count)
    ]
    return [Passage(number=n, salted=each) for n, each in enumerate(salted)]


def screening(**said: object) -> ScreenRun:
    made = {
        "run": "r",
        "at_ns": 0,
        "reference": "bf16",
        "passages": passages(),
        "lengths": LENGTHS,
        "block": 16,
        "listener": lambda _: None,
    }
    return ScreenRun(**made | said)  # type: ignore[arg-type]  # a test names the field


def kept(
    of: ScreenRun, outcome: str = "compared"
) -> list[tuple[str, dict[str, object], dict[str, object]]]:
    return [
        (row.arm, json.loads(row.settings), json.loads(row.detail or "{}"))
        for row in of.rows
        if row.outcome == outcome
    ]


async def test_every_prompt_and_length_is_a_row_and_the_reference_is_asked_four_times() -> None:
    made, base, other = screening(), source(batch=0.02), source(error=0.2)
    await made.ask({"bf16": base, "fp8": other})
    rows = [row for row in kept(made) if row[1]["path"] == "cache"]
    assert [(row[1]["prompt"], row[1]["length"]) for row in rows] == [
        (n, length) for n in range(8) for length in LENGTHS
    ]
    # JSON
    assert all(len(row[2]["own"]) == 3 and min(row[2]["own"]) > 0 for row in rows)  # type: ignore[arg-type,call-overload]
    alone = 3 + 8 * (
        1 + 2 * PLACES
    )  # three lists of growing length, then the whole prompt and its places
    assert (len(base.asked), len(other.asked)) == (3 + 4 * (alone - 3), alone)


async def test_each_place_is_one_token_past_a_whole_block() -> None:
    made, base = screening(), source()
    await made.ask({"bf16": base, "fp8": source()})
    assert all(asked % 16 == 1 for asked in base.asked[3:])


async def test_equal_servers_are_no_distance_apart_and_broken_ones_are_asked_three_prompts() -> (
    None
):
    made, same, broken = screening(), source(), source(broken_from=500, broken_error=20.0)
    await made.ask({"bf16": source(), "same": same, "fp8": broken})
    assert {row[2]["variation"] for row in kept(made) if row[0] == "same"} == {0.0}
    assert len(broken.asked) == 3 + 3 * (1 + 2 * PLACES)
    assert len(same.asked) == 3 + 8 * (1 + 2 * PLACES)


@pytest.mark.parametrize("fails_at", [1, 2, 4, 30])
async def test_a_server_that_fails_is_asked_nothing_more_and_the_others_go_on(
    fails_at: int,
) -> None:
    made, failing, other = screening(), replace_fails(source(), fails_at), source()
    await made.ask({"bf16": source(), "fp8": failing, "int8": other})
    ((who, _, why),) = kept(made, "not screened")
    assert (who, "gone" in str(why["reason"])) == ("fp8", True)
    assert len(failing.asked) <= fails_at + PLACES * 2
    assert len(other.asked) == 3 + 8 * (1 + 2 * PLACES)


@pytest.mark.parametrize("stops_at", [0, 1, 4, 40, 400])
async def test_a_screen_that_is_stopped_asks_nothing_more_and_speaks_against_no_arm(
    stops_at: int,
) -> None:
    base = source()
    made = screening(is_stopping=lambda: len(base.asked) >= stops_at + 3)
    await made.ask({"bf16": base, "fp8": source()})
    assert stops_at + 3 <= len(base.asked) <= stops_at + 3 + PLACES * 2
    assert not made.excused
    assert {row.outcome for row in made.rows} <= {"compared", "not scored"}


def replace_fails(of: Counting, fails_at: int) -> Counting:
    of.fails_at = fails_at
    return of


@pytest.mark.slow
async def test_servers_that_take_turns_are_compared_with_what_the_reference_said() -> None:
    together, apart = screening(), screening()
    await together.ask({"bf16": source(), "fp8": source(error=0.3)})
    await apart.ask({"bf16": source()})
    await apart.ask({"fp8": source(error=0.3)})
    assert kept(together) == kept(apart)


async def test_all_servers_list_as_many_as_the_one_that_lists_least() -> None:
    made = screening()
    await made.ask({"bf16": source(), "fp8": source(most=5)})
    assert {row[2]["listed"] for row in kept(made) if row[1]["path"] == "cache"} == {5}


@pytest.mark.parametrize(
    ("shortest", "longest", "expected"),
    [(900, 5000, (1024, 2048, 4096)), (3000, 3000, (2048,)), (10, 300, (300,))],
)
def test_lengths_double_between_those_of_the_calls(
    shortest: int, longest: int, expected: tuple[int, ...]
) -> None:
    assert ladder(shortest, longest) == expected


@pytest.mark.parametrize(("length", "block"), [(1024, 16), (8192, 528), (300, 64), (17, 16)])
def test_places_lie_within_their_length_one_past_a_block(length: int, block: int) -> None:
    found = places(length, block)
    assert 1 <= len(found) <= PLACES
    assert all(1 < each <= length and each % block == 1 for each in found) or length <= block


def test_the_users_own_prompts_are_the_longest_contexts_of_the_longest_sessions() -> None:
    def session(number: int) -> Session:
        return Session(
            session=f"s{number}",
            workload="w",
            start_s=float(number),
            turns=tuple(
                Turn(add=(Segment(role="user", tokens=1000, key=f"k{number}.{turn}"),), output=1)
                for turn in range(number + 1)
            ),
        )

    trace = Trace(header=Header(name="t"), sessions=tuple(session(number) for number in range(12)))
    found = own_passages(trace)
    assert [sum(each.tokens for each in context) for context in found.contexts] == [
        1000 * n for n in range(12, 4, -1)
    ]
    assert (found.lengths, found.is_own) == ((1024, 2048, 4096, 8192), True)
    few = own_passages(replace(trace, sessions=trace.sessions[:2]))  # type: ignore[index]  # a tuple here
    assert (
        len({context[0].key for context in few.contexts}) == 8
    )  # gone through again, with other content
    assert random_passages((4096,), seed=1).contexts[0][0].tokens == 4096


def test_a_prompt_is_written_token_by_token_whatever_was_written_before() -> None:
    prompts = [each.cut(salt, size) for each in passages(2) for salt in "ab" for size in SIZES]
    prompts += [range(7, 7 + size) for size in (3000, 1024, 2049, 1025, 2048, 5, 3001)]
    writing = Writing()
    assert [repr(writing.behind(each)) for each in prompts] == [
        repr(behind([" ".join(map(str, each))], [""], len(each))) for each in prompts
    ]
