import json
from array import array
from pathlib import Path

from agentload.serve.truth import Log, Truth


def test_a_truth_file_is_a_header_with_anchors_and_one_line_a_request(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "truth.jsonl", arm="p/a", speed=2.0)
    truth.add(Log(request_id="1", arrived_ns=5, planned_ns=array("q", [7]), end="done"))
    truth.add(Log(request_id="2", arrived_ns=6, end="left"))
    assert truth.write_one()
    assert not truth.write_one()
    truth.close()
    header, *logs = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines())
    assert {**header, "monotonic_ns": 0, "wall_ns": 0} == {
        "kind": "agentload-truth", "version": 1, "arm": "p/a", "speed": 2.0, "monotonic_ns": 0, "wall_ns": 0,
    }  # fmt: skip
    assert header["wall_ns"] > header["monotonic_ns"] > 0
    assert [(log["request_id"], log["end"], log["planned_ns"]) for log in logs] == [("1", "done", [7]), ("2", "left", [])]


def test_closing_writes_what_still_waits(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "truth.jsonl", arm="p/a", speed=1.0)
    for name in "abc":
        truth.add(Log(request_id=name, arrived_ns=0))
    truth.close()
    assert len((tmp_path / "truth.jsonl").read_text().splitlines()) == 4
