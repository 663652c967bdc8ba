from tools.covered import Covered, rooms, table


def file(statements: int, executed: int, branches: int, taken: int) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": executed,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_coverage_is_added_up_by_room() -> None:
    files = {
        "agentload/cli/main.py": file(10, 9, 4, 2),
        "agentload/cli/trace/show.py": file(6, 6, 0, 0),
        "advisor/words.py": file(3, 3, 0, 0),
    }
    found = rooms({"files": files})
    assert found == {
        "advisor": Covered(statements=3, executed=3),
        "agentload/cli": Covered(statements=16, executed=15, branches=4, taken=2),
    }
    assert [line.split() for line in table(found).splitlines()[1:]] == [
        ["advisor", "3", "100.0%", "0"],
        ["agentload/cli", "16", "93.8%", "4", "50.0%"],
        ["total", "19", "94.7%", "4", "50.0%"],
    ]
