from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from agentload.endpoints.read import read
from agentload.errors import UsageError
from agentload.matrix.described import LeftOut
from agentload.matrix.parts import document, write_arms
from agentload.matrix.read import preset_text
from agentload.matrix.steps import StepCost
from agentload.study.argv import argv, build_study
from agentload.study.document import parse, yaml_text
from agentload.study.kinds import Ask, Sweep
from agentload.study.parts import Live
from tests.matrix.files import model_folder, parts_of
from tests.study.words import split

ALL = """
measure:
  {pairs: 4, sessions: 2, contexts: 1k..4k, concurrency: {slo: tpot=50}, accuracy: {items: 40}, aa: true, waits: {user: 1}}
"""


def test_what_is_said_of_the_servers_is_said_in_the_files_of_the_steps_that_use_it(
    tmp_path: Path,
) -> None:
    (part,) = parts_of(
        "models: {a: {serve: org/a, windows: false}}"
        + ALL.replace("{pairs", "{noise: false, force: true, pairs"),
        tmp_path,
    )
    studies = [step.study for step in part.steps if step.study is not None]
    assert [parse(yaml_text(study), at="x") for study in studies] == studies
    servers = {step.kind: step.study.servers for step in part.steps if step.study is not None}
    assert {kind for kind, asked in servers.items() if not asked.noise} == {
        "replay",
        "context",
        "concurrency",
    }
    assert all(asked.force for asked in servers.values() if isinstance(asked, Live))


def test_an_arm_that_skips_windows_is_for_models_that_have_some(tmp_path: Path) -> None:
    full, windowed = (
        model_folder(tmp_path / "full", window=None),
        model_folder(tmp_path / "windowed", window=512),
    )
    one, other, unknown = parts_of(
        f"models: {{a: {full}, b: {windowed}, c: org/not-here}}", tmp_path
    )
    assert (one.arms, other.arms) == (("bf16", "fp8"), ("bf16", "fp8", "fp8-skip-sw"))
    assert one.left_out == (
        LeftOut(model="a", config="fp8-skip-sw", why="the model has no sliding-window layers"),
    )
    assert unknown.arms == ("bf16", "fp8", "fp8-skip-sw")
    assert "sliding windows unknown" in unknown.notes[0]


def test_calibrated_scales_need_a_checkpoint_that_has_them(tmp_path: Path) -> None:
    text = (
        "models: {a: {serve: org/a, windows: false}, b: {serve: org/b, calibrated: "
        "org/b-fp8}}\nconfigs: [bf16, fp8-calibrated]"
    )
    one, other = parts_of(text, tmp_path)
    assert one.arms == ("bf16",)
    assert "names no calibrated checkpoint" in one.left_out[0].why
    # a document
    command = document(other)["arms"]["fp8-calibrated"]["launch"]["command"]  # type: ignore[index]
    assert command[2:7] == ["org/b-fp8", "--port", "8000", "--served-model-name", "org/b"]


def test_what_is_set_for_all_a_model_may_set_anew_and_a_configuration_again(tmp_path: Path) -> None:
    text = """
models: {a: {serve: org/a, settings: {max-model-len: 2048, block-size: 16}, fields: {extra_body: {temperature: 1}}}}
configs: {big: {max-model-len: 8192, kv-cache-dtype: fp8}}
server: {settings: {max-model-len: 1024, enforce-eager: true}, gpu: H100, env: {A: "1"}}
"""
    (part,) = parts_of(text, tmp_path)
    assert yaml.safe_dump(document(part), sort_keys=False, width=1000) == (
        """\
model: org/a
gpu: H100
extra_body:
  temperature: 1
arms:
  big:
    url: http://127.0.0.1:8000/v1
    launch:
      command:
      - vllm
      - serve
      - org/a
      - --port
      - '8000'
      - --max-model-len
      - '8192'
      - --enforce-eager
      - --block-size
      - '16'
      - --kv-cache-dtype
      - fp8
      - --enable-prompt-tokens-details
      env:
        A: '1'
    expect:
      kv_cache_dtype: fp8
      max_model_len: 8192
"""
    )


def test_every_step_is_a_study_that_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(
        "arms: {x: {url: 'http://127.0.0.1:1/v1', launch: sleep 1}, y: {url: "
        "'http://127.0.0.1:2/v1'}}"
    )
    given = (
        f"models: {{a: org/a, b: {{endpoints: 'emulated:llama-3.1-8b-h100'}}, c: {{endpoints: "
        f"{tmp_path}/arms.yaml}}, d: {{endpoints: 'u=http://h/v1,v=http://i/v1'}}}}\n"
    )
    made = parts_of(given + ALL + "policy: {min_change: 0.1}", tmp_path)
    for step in {
        (step.kind, part.is_launched): step for part in made for step in part.steps
    }.values():
        assert step.study is None or argv(build_study(*split(argv(step.study)))) == argv(
            step.study
        ), step.key
    *_, part = made
    assert [step.key for step in part.steps] == [
        "d/replay",
        "d/context",
        "d/concurrency/short/u",
        "d/concurrency/short/v",
        "d/concurrency/rag/u",
        "d/concurrency/rag/v",
        "d/accuracy",
        "d/report",
    ]
    assert part.steps[3].study is not None
    assert part.steps[3].study.servers == Live(endpoints=str(tmp_path / "d/endpoints.yaml/v"))


def test_questions_are_counted_by_the_tokenizer_and_taken_from_the_file_that_a_matrix_names(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(
        '{"id": "a", "messages": [{"role": "user", "content": "Say hi."}], "grader": '
        '{"has": "hi"}}\n'
    )
    given = (
        "models: {a: {serve: org/a, windows: false}}\nconfigs: {bf16: , fp8: }\nmeasure: "
        "{sessions: 2, accuracy: {%s}}\n"
    )
    (counted,) = parts_of(given % "items: 4, tokenizer: t.json", tmp_path)
    (supplied,) = parts_of(given % f"own: {own}", tmp_path)
    asked = {part.steps[1].study for part in (counted, supplied)}
    assert {study.tokenizer for study in asked if isinstance(study, Ask)} == {"t.json", None}
    # Nobody need be started to count beforehand.
    assert [
        (part.estimates["accuracy"].calls, part.estimates["accuracy"].starts)
        for part in (counted, supplied)
    ] == [(8, 2), (2, 2)]


def test_a_sweep_that_was_cut_short_asks_for_what_is_left_of_it(tmp_path: Path) -> None:
    (part,) = parts_of("models: {a: org/a}\n" + ALL, tmp_path)
    sweep = part.steps[1]
    left = sweep.with_pairs(1)
    assert isinstance(sweep.study, Sweep)
    assert (sweep.study.pairs, left) == (3, replace(sweep.study, pairs=1))


def test_what_a_step_takes_is_told_with_the_starts_of_its_servers(tmp_path: Path) -> None:
    text = (
        "models: {a: {serve: org/a, windows: false}}\nserver: {price_per_hour: 3, gpus: 2, "
        "start_minutes: 5}\n"
    )
    (part,) = parts_of(text + ALL, tmp_path)
    taken = part.estimates
    assert taken["replay"].starts == 3 * 3 + 1  # the control is a start of its own
    assert (taken["context"].calls, taken["context"].starts) == (3 * 2 * 3, 7)
    assert (taken["accuracy"].calls, taken["accuracy"].starts) == (
        80,
        3,
    )  # nobody here counts tokens: the reference is started for it
    assert taken["concurrency/rag/fp8"] == StepCost(
        calls=None, starts=1, minutes=19.0, usd=19.0 / 60 * 6
    )
    assert taken["replay"].minutes > 50
    (emulated,) = parts_of(
        "models: {b: {endpoints: 'emulated:llama-3.1-8b-h100'}}\n" + ALL, tmp_path
    )
    assert {(each.starts, each.usd) for each in emulated.estimates.values()} == {(0, None)}


def test_one_configuration_is_tried_beside_the_reference_in_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    text = "models: {a: org/a, b: org/b}"
    (part,) = parts_of(text, tmp_path, only="b/fp8-skip-sw")
    assert (part.name, part.arms) == ("b.fp8-skip-sw", ("bf16", "fp8-skip-sw"))
    assert [each.name for each in parts_of(text, tmp_path, only="a")] == ["a"]
    for only, error in (("c", "no model 'c'"), ("a/fp9", "a is not tried with 'fp9'")):
        with pytest.raises(UsageError, match=error):
            parts_of(text, tmp_path, only=only)


def test_the_first_configuration_that_a_model_names_is_its_reference(tmp_path: Path) -> None:
    (part,) = parts_of("models: {a: {serve: org/a, configs: [fp8, bf16]}}", tmp_path)
    assert part.arms == ("fp8", "bf16")
    (part,) = parts_of(
        "models: {a: {endpoints: 'bf16=http://h/v1,fp8=http://i/v1', configs: [fp8, bf16]}}",
        tmp_path,
    )
    assert part.arms == ("fp8", "bf16")
    # a document
    assert list(document(part)["arms"]) == ["fp8", "bf16"]  # type: ignore[call-overload]
    (part,) = parts_of(
        "models: {a: {endpoints: 'emulated:gpt-oss-20b-h100', configs: [bf16, fp8]}}", tmp_path
    )
    assert part.arms == ("bf16", "fp8")
    with pytest.raises(UsageError, match="no arm 'fp9'"):
        parts_of("models: {a: {endpoints: 'emulated:gpt-oss-20b-h100', configs: [fp9]}}", tmp_path)
    with pytest.raises(UsageError, match="must keep their profile's order"):
        parts_of(
            "models: {a: {endpoints: 'emulated:gpt-oss-20b-h100', configs: [fp8, bf16]}}", tmp_path
        )


def test_servers_that_run_already_are_asked_as_their_model_says(tmp_path: Path) -> None:
    """An arms file is made of their URLs, named or not, with all that holds for them."""
    text = (
        "models: {a: {endpoints: 'http://h/v1,http://i/v1', fields: {model: m, key_env: "
        "KEY}}}\nmeasure: {sessions: 2}"
    )
    (part,) = parts_of(text, tmp_path)
    assert document(part) == {
        "model": "m",
        "key_env": "KEY",
        "arms": {"arm1": {"url": "http://h/v1"}, "arm2": {"url": "http://i/v1"}},
    }
    write_arms(part, keeps_others=False)
    found = read(part.endpoints(part.arms))
    assert isinstance(found, tuple)
    assert [each.model for each in found] == ["m", "m"]


def test_a_server_on_several_gpus_costs_as_many(tmp_path: Path) -> None:
    text = "models: {a: org/a}\nconfigs: {one: {max-num-seqs: 8}, two: {tensor-parallel-size: 2}}\n"
    text += "measure: {sessions: 2, concurrency: {}}\n"
    (part,) = parts_of(text + "server: {price_per_hour: 3}", tmp_path)
    one, two = (part.estimates[f"concurrency/rag/{arm}"].usd for arm in ("one", "two"))
    assert one is not None
    assert two == pytest.approx(2 * one)
    entries = document(part)["arms"].values()  # type: ignore[attr-defined]  # a document
    assert [entry.get("gpus") for entry in entries] == [None, 2]
    assert [entry.get("tensor_parallel") for entry in entries] == [None, 2]
    (given,) = parts_of(text + "server: {price_per_hour: 3, gpus: 2}", tmp_path)
    assert {given.estimates[f"concurrency/rag/{arm}"].usd for arm in ("one", "two")} == {two}


def test_the_multimodal_cells_of_the_plan_send_images_and_no_other_model_gets_any(
    tmp_path: Path,
) -> None:
    seen = {
        part.name: {
            segment.role
            for each in part.matrix.workloads
            for session in islice(part.traces[each.name].sessions, 5)
            for turn in session.turns
            for segment in turn.add
        }
        for part in parts_of(preset_text("lecture-plan", model=None), tmp_path)
    }
    assert {name for name, roles in seen.items() if "image" in roles} == {"multimodal"}


def test_a_model_without_a_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="b: no workload is for it"):
        parts_of(
            "models: {a: org/a, b: org/b}\nworkloads: {rag: {trace: rag, only: [a]}}", tmp_path
        )
