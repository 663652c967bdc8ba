import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from advisor.policy import Policy, ServiceLimits
from advisor.verdict import Decision
from agentload.report.document import document
from agentload.report.formats import json as rendered
from tests.report import sample
from tests.report.formats.decision_schema import schema
from tests.report.golden import assert_golden

SCHEMA = Path(__file__).parents[3] / "docs" / "decision.schema.json"


def text(decision: Decision | None = None) -> str:
    policy = Policy(slos=(ServiceLimits(workload="code", ttft_ms=3_000.0),))
    return rendered.json(
        document(decision or sample.decision(), sample.evidence(), sample.facts(), policy=policy)
    )


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def valid(file: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(file)
    validator().validate(loaded)
    return loaded


def test_a_report_in_json_is_as_it_was_looked_at() -> None:
    assert_golden("decision.json", text())


def test_the_schema_in_the_manual_is_the_programs() -> None:
    assert_golden(str(SCHEMA), schema())


def test_a_decision_file_meets_its_schema() -> None:
    assert valid(text())["lists"]["use"] == ["code, long_chat (FP8 skip-SW)"]


def test_a_decision_file_that_lacks_its_decision_does_not() -> None:
    broken = {key: value for key, value in json.loads(text()).items() if key != "decision"}
    errors = [error.message for error in validator().iter_errors(broken)]
    assert errors == ["'decision' is a required property"]


def test_what_is_no_number_is_null_and_numbers_of_numpy_are_numbers() -> None:
    decision = sample.decision()
    odd = replace(decision.break_even[0], tokens=float("nan"), slope_z=np.float64(9.5))
    loaded = valid(text(replace(decision, break_even=(odd,))))
    assert (
        loaded["decision"]["break_even"][0]["tokens"],
        loaded["decision"]["break_even"][0]["slope_z"],
    ) == (None, 9.5)
