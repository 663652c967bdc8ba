"""Predict the kit's decisions from the profiles, in virtual time, before anything is measured.

    python -m benchmarks.gpu.predict [-o benchmarks/gpu/prediction.yaml]

Each decision is asked as the kit asks servers: the same arms, KV memory, load
and budget. What is predicted is the change of an arm against the first one,
with the interval that such a decision has. Nothing here was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from agentload.emulator.profile import text
from benchmarks.gpu import plan
from benchmarks.gpu.make import profiled
from benchmarks.gpu.plan import HOUSE
from benchmarks.gpu.run import AGENTLOAD

PREDICTION: Final = Path(__file__).with_name("prediction.yaml")
METRICS: Final = ("turn_ms", "ttft_ms", "tpot_ms")
Ends: TypeAlias = Mapping[str, Any]
"""A change's value, low and high end; None where it has no such end."""
HEAD: Final = """\
# What the profiles predict for each decision of the kit, from virtual time: nothing here was
# measured. Percent of the first arm, with the interval of such a decision; null: that end is open,
# since a full pool says how much at the least. Made by `python -m benchmarks.gpu.predict`, before
# any run; `python -m benchmarks.gpu.digest` compares.
"""


def changes(decided: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a decision file says of each arm's latencies over
    all classes, in percent of the reference; an open end is None.
    """
    for each in decided["decision"]["changes"]:
        found = each["relative"]
        if each["workload"] is None and each["metric"] in METRICS and found is not None:
            ends = {
                name: None if found[name] is None else round(100 * found[name], 1)
                for name in ("value", "low", "high")
            }
            yield {"arm": each["arm"], "metric": each["metric"], **ends}


def holds(predicted: Ends, measured: Ends) -> bool:
    """Tell whether two changes agree: their log ratios differ by no more than both
    intervals allow, or, where one is a bound, the intervals have a value in common. A change
    without any end says nothing, and agrees with nothing.
    """
    ends = [(each["low"], each["high"]) for each in (predicted, measured)]
    if (None, None) in ends:
        return False
    if any(None in each for each in ends):
        lows = [each["low"] for each in (predicted, measured) if each["low"] is not None]
        highs = [each["high"] for each in (predicted, measured) if each["high"] is not None]
        return max(lows, default=-math.inf) <= min(highs, default=math.inf)
    logs = [
        [math.log1p(each[name] / 100) for name in ("low", "value", "high")]
        for each in (predicted, measured)
    ]
    reach = math.hypot(*((high - low) / 2 for low, _, high in logs))
    return abs(logs[0][1] - logs[1][1]) <= reach


def decided(data: Mapping[str, Any], trace: str, model: str, folder: Path) -> dict[str, Any]:
    """Decide in virtual time as the kit does on a GPU; return the decision file."""
    profile = folder / f"{model}.yaml"
    profile.write_text(text(profiled(data, model)), encoding="utf-8")
    given = data["places"]["gpu"]["values"]
    load = data["load"].format_map(data["models"][model]["plays"][trace]).split()
    command = [
        AGENTLOAD,
        "decide",
        trace,
        "--profile",
        str(profile),
        "--arms",
        ",".join(data["models"][model]["arms"]),
        *load,
    ]
    command += [
        "--budget",
        given["budget"],
        "--db",
        str(folder / "predicted.duckdb"),
        "-o",
        str(folder / f"{model}-{trace}"),
        "--quiet",
    ]
    subprocess.run(command, check=True, cwd=HOUSE, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(
        (folder / f"{model}-{trace}" / "decision.json").read_text(encoding="utf-8")
    )
    return found


def main() -> None:
    """Write the prediction."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, default=PREDICTION)
    given = parser.parse_args()
    data, out = plan.kit(), []
    with tempfile.TemporaryDirectory() as folder:
        for trace, models in data["decisions"].items():
            for model in models:
                found = decided(data, trace, model, Path(folder))
                pairs = max((each["pairs"] for each in found["decision"]["changes"]), default=0)
                said = {
                    "trace": trace,
                    "model": model,
                    "profile": data["models"][model]["profile"],
                    "headline": found["headline"],
                }
                out.append({**said, "pairs": pairs, "changes": list(changes(found))})
                print(f"{model} {trace}: {found['headline']}", file=sys.stderr, flush=True)
    lines = yaml.safe_dump(out, sort_keys=False, width=136, default_flow_style=None)
    given.out.write_text(HEAD + lines, encoding="utf-8")


if __name__ == "__main__":
    main()
