"""What the demo does on a machine that is too busy;
that its tour decides is in tests/report/test_kept.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.policy import Policy
from advisor.verdict import Gate
from agentload.cli import _tour
from agentload.cli._tour import LIVE, Stop
from agentload.report.document import document
from agentload.report.record import Measured
from tests.report import sample

LATE = Gate(name="client", status="fail", message="requests left late")
IN_TIME = Gate(name="client", status="pass", message="requests left in time")


def measured(gate: Gate) -> Measured:
    decision = replace(sample.decision(), gates=(gate,))
    return Measured(
        model="live",
        document=document(decision, sample.evidence(), sample.facts(), policy=Policy()),
        evidence=sample.evidence(),
    )


@pytest.mark.parametrize("gates", [(IN_TIME,), (LATE, IN_TIME), (LATE, LATE)])
def test_the_live_comparison_is_played_with_fewer_sessions_until_requests_leave_in_time(
    gates: tuple[Gate, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, tried = list(gates), []

    def visit(stop: Stop, folder: Path, **said: object) -> Measured:
        assert (stop, folder) == (LIVE, tmp_path / "live")
        tried.append(said["sessions"])
        return measured(left.pop(0))

    monkeypatch.setattr(_tour, "visit", visit)
    found = _tour.live(tmp_path, profile="p", seed=0)
    assert found.document.decision.gates == (gates[-1],)
    assert tried == [3, 1][: len(gates)]
    assert capsys.readouterr().out.count("too busy") == gates.count(LATE)
