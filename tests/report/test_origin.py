"""Where a run's trace came from is said in words."""

from typing import Any

import pytest

from agentload.report.origin import origin

WEKA = {"importer": "weka", "files": 1}


@pytest.mark.parametrize(
    ("source", "sessions", "words"),
    [
        (WEKA, {"": 131}, "replayed from weka import of 131 sessions"),
        (WEKA, {"": 1}, "replayed from weka import of 1 session"),
        (WEKA | {"degraded": {"break": 0.1}}, {"": 9}, "replayed from weka import of 9 sessions, degraded"),
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
def test_a_trace_is_imported_fitted_synthetic_or_unknown(source: dict[str, Any], sessions: dict[str, int], words: str | None) -> None:
    assert origin(source, sessions) == words
