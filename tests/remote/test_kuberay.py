from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agentload.errors import UsageError
from agentload.remote.kuberay import HOME, rayjob
from agentload.study.argv import build_study
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from tests.study.words import split

STUDY = Replay(
    traces=(TraceRef(path="rag"),),
    servers=Live(endpoints="a=http://10.0.0.1:8000/v1"),
    on="ray:10.0.0.9:6379",
    nodes=4,
)


def test_a_rayjob_has_what_kuberay_requires_and_one_node_a_machine() -> None:
    job = yaml.safe_load(rayjob(STUDY, image="registry/agentload:1", database=Path("x.duckdb")))
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == (
        "ray.io/v1",
        "RayJob",
        "agentload-replay",
    )
    made = job["spec"]["rayClusterSpec"]
    assert made["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    (group,) = made["workerGroupSpecs"]
    assert [group[name] for name in ("groupName", "replicas", "minReplicas", "maxReplicas")] == [
        "nodes",
        4,
        4,
        4,
    ]
    for template in (made["headGroupSpec"]["template"], group["template"]):
        (container,) = template["spec"]["containers"]
        assert container["image"] == "registry/agentload:1"
        assert container["volumeMounts"] == [{"name": "data", "mountPath": HOME}]
    (apart,) = group["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["labelSelector"]["matchLabels"] == group["template"]["metadata"]["labels"]


def test_its_entry_point_is_the_same_study_on_the_cluster_that_it_starts() -> None:
    job = yaml.safe_load(rayjob(STUDY, image="i", database=Path("runs/x.duckdb")))
    program, *words = job["spec"]["entrypoint"].split()
    assert program == "agentload"
    made = build_study(*split(words))
    assert isinstance(made, Replay)
    assert (made.on, made.nodes, made.share, made.traces, made.servers) == (
        "ray",
        4,
        f"{HOME}/shards",
        STUDY.traces,
        STUDY.servers,
    )
    assert words[words.index("--db") + 1] == f"{HOME}/x.duckdb"


def test_files_that_the_image_needs_are_named_above_it(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").touch()
    trace = TraceRef(path=str(tmp_path / "t.jsonl"))
    said = rayjob(
        Replay(traces=(trace,), servers=STUDY.servers, on="ray", nodes=2),
        image="i",
        database=Path("x.duckdb"),
    )
    assert f"# the image's working directory needs: {trace.path}\n" in said


def test_shards_go_where_every_pod_sees_them() -> None:
    for share, is_seen in ((f"{HOME}/mine", True), ("/mnt/shards", False)):
        made = extend(STUDY, share=share)
        if is_seen:
            assert f"--share {share}" in rayjob(made, image="i", database=Path("x.duckdb"))
        else:
            with pytest.raises(UsageError, match="pods see one folder"):
                rayjob(made, image="i", database=Path("x.duckdb"))


@pytest.mark.parametrize(("image", "nodes"), [(None, 4), ("i", None)])
def test_an_image_and_a_number_of_nodes_are_needed(image: str | None, nodes: int | None) -> None:
    made = Replay(traces=STUDY.traces, servers=STUDY.servers, on="ray", nodes=nodes)
    with pytest.raises(UsageError, match="which image, and how many nodes"):
        rayjob(made, image=image, database=Path("x.duckdb"))
