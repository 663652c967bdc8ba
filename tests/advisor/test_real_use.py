"""What real use has shown to be wrong or misleading, and the test that holds the right answer.

1. A load that the trace cannot hold was "no difference":
    tests/layout/test_plan.py::test_a_load_that_no_block_can_hold_is_an_error_before_the_run
2. Two equal arms on machines 8% apart were "avoid":
    tests/run/test_machines.py::test_two_copies_of_one_arm_are_never_avoided_or_used_for_their_machine
3. The interval that was printed was not the one that decided:
    tests/advisor/test_decide.py::test_the_interval_that_is_printed_is_the_one_that_decides
4. Agents were known, and nobody asked for the peak:
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[agents are known, the peak is not]
5. The first screen was a refusal:
    tests/advisor/test_real_use.py::test_the_first_screen_shows_a_decision_of_each_kind
6. Suggested commands had blanks:
    tests/report/test_suggested.py::test_every_command_of_a_report_runs_as_it_is_printed
7. Turns too long for the model failed the run:
    tests/layout/test_cost.py::test_turns_that_are_longer_than_the_models_window_are_named_before_the_run
8. A kernel bug was found only after answers, and the wrong remedy:
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[a known kernel bug before answers were asked]
9. Every block was invalid for one reason:
    tests/run/test_gateways.py::test_three_pairs_in_a_row_that_are_invalid_for_one_reason_end_the_run
10. Two names of one configuration were compared:
    tests/evidence/test_gather.py::test_arms_that_are_one_configuration_under_two_names_are_known_as_such
11. One URL twice was measured:
    tests/endpoints/test_read.py::test_one_server_typed_twice_is_no_comparison
12. A gateway answered in a server's place:
    tests/run/test_gateways.py::test_a_gateways_response_cache_voids_every_play_of_the_block_by_name
13. Usage that counts twice was put on the tokenizer:
    tests/evidence/test_health.py::test_a_count_of_twice_the_prompt_is_no_matter_of_the_tokenizer
14. A TTFT half as long again counted for nothing:
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[first tokens come much later, and no level is stated]
15. Broken above a length, and no word of a cap:
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[wrong above 64k alone]
16. Before the search, "no difference":
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[a larger pool that the load fills]
17. One command that asks for everything was hidden in `matrix`:
    tests/advisor/test_real_use.py::test_one_command_plans_speed_capacity_and_answers_within_a_budget
18. GPUs that are saved had no dollars:
    tests/report/sections/test_opening.py::test_gpus_are_dollars_a_month_at_both_ends_where_a_price_is_known_and_they_are_surely_saved
19. Two URLs were taken for one machine:
    tests/run/test_known.py::test_an_arm_and_its_control_share_a_server_and_arms_behind_a_gateway_do_not
20. Nobody said "upgrade":
    tests/advisor/test_worlds.py::test_a_world_is_decided_as_an_expert_would[a known kernel bug before answers were asked]
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.advisor.test_worlds import WORLDS
from tests.cli.verbs import agentload

HOUSE = Path(__file__).parents[2]


def test_the_first_screen_shows_a_decision_of_each_kind() -> None:
    screen = (HOUSE / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    said = (
        "Use FP8 KV-cache for: ",
        "Avoid FP8 KV-cache for: ",
        "Need calibration for: ",
        "Need further testing for: ",
        "No difference for: ",
    )
    assert [
        next((word for word in said if line.startswith(word)), None)
        for line in screen
        if line.startswith(said)
    ] == list(said)


@pytest.mark.slow
def test_one_command_plans_speed_capacity_and_answers_within_a_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agentload(
        "decide chat --endpoints emulated:llama-3.1-8b-h100 --slo ttft=2s,tpot=50ms "
        "--agents 400 --budget 45m --dry-run"
    )
    lines = capsys.readouterr().out.splitlines()
    criteria = ("speed", "step times", "capacity", "accuracy")
    assert [
        next(each for each in criteria if line.startswith(each))
        for line in lines
        if line.startswith(criteria)
    ] == list(criteria)
    (sum_of_all,) = (line for line in lines if line.startswith("all of it: "))
    planned, budget = map(int, re.findall(r"\d+", sum_of_all))
    assert planned <= budget == 45
    assert "agentload decide rag chat" in (HOUSE / "README.md").read_text(encoding="utf-8")


def test_every_answer_of_the_table_is_a_test() -> None:
    row = r"^(\d+)\. .*:\n    (\S+\.py)::(test_\w+)(?:\[(.+)\])?$"
    table = re.findall(row, __doc__, re.MULTILINE)
    assert [int(number) for number, *_ in table] == list(range(1, 21))
    for _, file, name, world in table:
        assert f"def {name}(" in (HOUSE / file).read_text(encoding="utf-8"), name
        assert not world or world in WORLDS, world
