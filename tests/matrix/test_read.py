from __future__ import annotations

from pathlib import Path

import pytest

from agentload import builtin
from agentload.errors import AgentloadError, UsageError
from agentload.matrix.described import Config, MatrixModel, MatrixServer, MatrixWorkload
from agentload.matrix.measure import NOBODY, measure
from agentload.matrix.parts import traces_of
from agentload.matrix.read import PRESET_MODEL, parse, preset_text, read_matrix
from agentload.model.walk import contexts
from agentload.study.kinds import Replay, Search, Sweep
from agentload.study.parts import Live, Load, Slo, TraceRef

LEAST = "models: {chat: org/model}\nworkloads: {rag: rag}\n"


def test_a_model_and_a_workload_are_enough() -> None:
    found = parse(LEAST, at="x")
    assert (found.models, found.workloads) == (
        (MatrixModel(name="chat", serve="org/model"),),
        (MatrixWorkload(name="rag", trace="rag"),),
    )
    assert [config.name for config in found.configs] == ["bf16", "fp8", "fp8-skip-sw"]
    assert (found.measure, found.server) == (measure({}, "measure", workloads=()), MatrixServer())


def test_everything_that_a_file_says_is_read() -> None:
    found = parse(
        """
name: mine
models:
  a: {serve: org/a, settings: {max_model_len: 4096}, calibrated: ./a-fp8, configs: [fp8-calibrated, small], fields: {extra_body: {seed: 1}}}
  b: {endpoints: "emulated:llama-3.1-8b-h100"}
configs: {bf16: , fp8-calibrated: , small: {base: fp8, only: a, max-num-seqs: 8}}
grid: {base: fp8, max-num-seqs: [64]}
workloads: {long: {generate: rag, options: {sessions: 4, passages: 9}, scale: 2, seed: 3}}
measure:
  {pairs: 4, restarts: 9, sessions: null, waits: {user: 5}, contexts: 1k..4k, concurrency: {slo: tpot=50, workloads: [mix]}}
server: {command: /opt/bin/vllm, port: 9000, env: {A: "1"}, settings: {enforce-eager: true}, gpu: H100, price_per_hour: 2.5}
policy: {min_change: 0.05}
""",
        at="x",
    )
    assert found.name == "mine"
    assert found.models[0] == MatrixModel(
        name="a",
        serve="org/a",
        settings={"max-model-len": 4096},
        calibrated="./a-fp8",
        configs=("fp8-calibrated", "small"),
        fields={"extra_body": {"seed": 1}},
    )
    assert found.configs[1:] == (
        Config(name="fp8-calibrated", settings={"kv-cache-dtype": "fp8"}, is_calibrated=True),
        Config(name="small", settings={"kv-cache-dtype": "fp8", "max-num-seqs": 8}, only=("a",)),
        Config(name="fp8-seqs64", settings={"kv-cache-dtype": "fp8", "max-num-seqs": 64}),
    )
    assert found.workloads == (
        MatrixWorkload(
            name="long", generate="rag", options={"sessions": 4, "passages": 9}, scale=2, seed=3
        ),
    )
    measure = found.measure
    # No more starts than pairs.
    servers = Live(endpoints=NOBODY, restarts=4)
    assert measure.replay == Replay(
        traces=(TraceRef(path="-"),), servers=servers, pairs=4, load=Load(wait_cap_s={"user": 5.0})
    )
    assert measure.contexts == Sweep(
        servers=Live(endpoints=NOBODY), contexts=(1024, 2048, 4096), pairs=3
    )
    assert (measure.concurrency, measure.searched) == (
        Search(
            traces=(TraceRef(path="-"),),
            servers=Live(endpoints=NOBODY),
            slo=Slo(tpot_ms=50.0),
            load=Load(wait_cap_s={"user": 5.0}),
        ),
        ("mix",),
    )
    assert (found.server.command, found.server.settings) == (
        ("/opt/bin/vllm",),
        {"enforce-eager": True},
    )
    assert found.policy == {"min_change": 0.05}


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("models: [", "x:1: not YAML", "quote"),
        ("models: {}\nworkloads: {rag: rag}", "x: 'models' is empty", "preset"),
        (LEAST + "measures: {}", "unknown field `measures`", "preset"),
        (LEAST + "measure: {pairs: 0}", "x: measure: pairs must be >= 1, got 0", "preset"),
        (
            LEAST + "measure: {concurrency: {workloads: [chat]}}",
            "measure.concurrency: no workload 'chat'",
            "rag, mix",
        ),
        (
            LEAST + "measure: {concurrency: {load: {rate_per_s: 3}}}",
            "measure.concurrency: a search decides by itself how many sessions run",
            "leave out load.sessions and load.rate_per_s",
        ),
        (
            LEAST + "measure: {load: {burst: 5x10/60}}",
            "measure: load.burst and load.ramp_from_per_s shape an open loop",
            "load: {rate_per_s: 0.5, burst: 5x10/60}",
        ),
        (
            LEAST + "measure: {swap: true, load: {sessions: 4, rate_per_s: 2}}",
            "measure: load.sessions (closed loop) and load.rate_per_s (open loop) exclude",
            "load: {sessions: 4}, or load: {rate_per_s: 2}",
        ),
        (
            LEAST + "measure: {concurrency: {slo: tptf=50}}",
            "measure.concurrency: slo: no limit 'tptf'",
            "ttft",
        ),
        (
            LEAST + "measure: {accuracy: {concurrency: 0}}",
            "measure.accuracy: concurrency must be >= 1, got 0",
            "preset",
        ),
        (
            LEAST + "measure: {traces: [chat]}",
            "measure: 'traces' is not a template's to say",
            "workloads",
        ),
        (
            LEAST + "measure: {concurrency: {traces: [chat]}}",
            "measure.concurrency: 'traces' is not a template's to say",
            "workloads",
        ),
        (
            LEAST + "measure: {contexts: {contexts: 1k, servers: {endpoints: e}}}",
            "measure.contexts: 'servers' is not",
            "models",
        ),
        (
            LEAST + "measure: {concurrency: {seconds: 0}}",
            "measure.concurrency: trial_s must be positive, got 0",
            "preset",
        ),
        (
            LEAST + "measure: {waits: {user: -1}}",
            "measure: load.wait_cap_s must be zero or more, got -1",
            "preset",
        ),
        (LEAST + "configs: [bf17]", "configs.bf17 has no settings", "did you mean bf16"),
        (
            LEAST + "configs: {few: {base: fp9}}",
            "no well-known configuration 'fp9'",
            "did you mean fp8",
        ),
        (
            LEAST + "configs: {few: {max-num-seq: 8}}",
            "configs.few: vLLM has no setting 'max-num-seq'",
            "max-num-seqs",
        ),
        (
            LEAST + "configs: {seqs64: {max-num-seqs: 64}}\ngrid: {max-num-seqs: [64]}",
            "two configurations are called 'seqs64'",
            "rename",
        ),
        (
            LEAST + "configs: {few: {base: [fp8]}}",
            "x: configs.few.base must be the name of one configuration",
            "base: fp8",
        ),
        (
            LEAST + "configs: {few: {base: 7}}",
            "x: configs.few.base must be the name of one configuration",
            "base: fp8",
        ),
        (
            LEAST + "grid: {base: [fp8], max-num-seqs: [64]}",
            "x: grid.base must be the name of one configuration",
            "base: fp8",
        ),
        (
            LEAST + "grid: {base: fp8}",
            "x: grid has no lists of settings",
            "max-num-seqs: [64, 256]",
        ),
        (
            LEAST + "configs: {fp8: {base: '', max-num-seqs: 8}}",
            "x: configs.fp8: no well-known configuration ''",
            "fp8",
        ),
        (
            LEAST + "grid: {base: '', max-num-seqs: [64]}",
            "x: grid: no well-known configuration ''",
            "fp8",
        ),
        *(
            (
                f"{LEAST}configs: {{{name}: {{max-num-seqs: 8}}}}",
                "a name starts with a letter or digit and has at most 61 letters, digits",
                "llama-8b",
            )
            for name in ("'a b'", "-few", "few" * 21)
        ),
        (LEAST + "policy: {min_chnge: 1}", "policy: unknown key 'min_chnge'", "min_change"),
        (LEAST + "server: {command: ''}", "server.command is empty", "vllm"),
        (
            LEAST + 'server: {command: "vllm \'x"}',
            "server.command cannot be read: No closing quotation",
            "list of words",
        ),
        (
            "models: {a: {serve: m, endpoints: e}}\nworkloads: {rag: rag}",
            "models.a needs either 'serve' or 'endpoints'",
            "serve",
        ),
        (
            "models: {a: {serve: m, configs: [fp9]}}\nworkloads: {rag: rag}",
            "models.a: no configuration 'fp9'",
            "bf16, fp8",
        ),
        (
            "models: {a: {endpoints: x.yaml, windows: true}}\nworkloads: {rag: rag}",
            "'windows' is for what 'serve' names",
            "",
        ),
        (
            (
                "models: {a: {endpoints: 'emulated:llama-3.1-8b-h100', fields: {model: "
                "m}}}\nworkloads: {rag: rag}"
            ),
            "emulated servers have none",
            "",
        ),
        (
            "models: {a: {endpoints: x.yaml, settings: {block-size: 16}}}\nworkloads: {rag: rag}",
            "settings apply only to servers",
            "serve",
        ),
        (
            "models: {a: {endpoints: 'a=http://x/v1', launch: true}}\nworkloads: {rag: rag}",
            "'launch' applies only to an arms file",
            "",
        ),
        (LEAST + "server: {env: {HF_TOKEN: word}}", "server holds a key", "export"),
        (LEAST + "server: {command: vllm --api-key word}", "server holds a key", "export"),
        (
            LEAST + "server: {settings: {api-key: word}}",
            "server.settings: 'api-key' holds a key",
            "export",
        ),
        (
            LEAST + "configs: {few: {args: [--api-key, word]}}",
            "configs.few: 'args' holds a key",
            "export",
        ),
        (
            "models: {a: {endpoints: 'a=http://me:word@h/v1'}}\nworkloads: {rag: rag}",
            "models.a.endpoints holds a password",
            "key_env",
        ),
        (
            (
                "models: {a: {endpoints: x.yaml, fields: {extra_body: {api_key: "
                "word}}}}\nworkloads: {rag: rag}"
            ),
            "models.a.fields.extra_body.api_key holds a key",
            "header_env",
        ),
        (
            "models: {a: m}\nworkloads: {mix: rag}",
            "workloads.mix: 'mix' means all workloads at once",
            "another name",
        ),
        (
            "models: {a: m}\nworkloads: {rag: {generate: rug}}",
            "workloads.rag: no workload 'rug'",
            "did you mean rag",
        ),
        (
            "models: {a: m}\nworkloads: {rag: {generate: rag, options: {passage: 3}}}",
            "has no option 'passage'",
            "passages",
        ),
        (
            "models: {a: m}\nworkloads: {mine: {trace: rag, scale: 2}}",
            "options and scale belong to a generator",
            "{generate: rag, options: {…}}",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_mends_it(text: str, error: str, hint: str) -> None:
    with pytest.raises(AgentloadError) as caught:
        parse(text, at="x")
    assert error in caught.value.message
    assert "word" not in caught.value.message.replace("password", "")
    assert hint in (caught.value.hint or "")


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json"):
        parse(f"models: {{a: {tmp_path}}}\nworkloads: {{rag: rag}}", at="x")


def test_a_file_that_is_not_there_names_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_matrix(tmp_path / "matrix.yaml")
    assert "agentload matrix --preset mini-lab" in (caught.value.hint or "")


@pytest.mark.parametrize("name", builtin.names("presets"))
def test_the_shipped_matrices_are_read_and_serve_the_model_that_one_asks_for(name: str) -> None:
    assert parse(preset_text(name, model=None), at=name).models[0].serve == PRESET_MODEL
    assert parse(preset_text(name, model="org/other"), at=name).models[0].serve == "org/other"


@pytest.mark.parametrize("name", builtin.names("presets"))
def test_what_a_shipped_matrix_plays_fits_its_servers(name: str) -> None:
    """A longer window than a model allows keeps its server from
    starting; a shorter one than its workloads have fails their calls.
    """
    found = parse(preset_text(name, model=None), at=name)
    window = found.server.settings["max-model-len"]
    assert isinstance(window, int)
    measure = found.measure
    asked = measure.accuracy.contexts if measure.accuracy is not None else ()
    swept = [] if measure.contexts is None else measure.contexts.contexts
    answer = 0 if measure.contexts is None else measure.contexts.output_tokens
    played = (
        sum(segment.tokens for segment in context) + turn.output
        for trace in traces_of(found).values()
        for session in trace.sessions
        for turn, context in zip(session.turns, contexts(trace.header, session), strict=True)
    )
    assert max(*(each + answer for each in swept), *asked, *played) <= window
    assert window <= 40960 or name != "mini-lab"  # of Qwen3-8B, which the documentation begins with
