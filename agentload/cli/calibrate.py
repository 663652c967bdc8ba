"""Write a script that calibrates an FP8 KV cache on a trace's own prompts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._study import DB, Db
from agentload.endpoints.commands import calibrated_name
from agentload.errors import UsageError
from agentload.model.kv import CALIBRATED_IN
from agentload.run.calibration import Strategy, draw_sample, script
from agentload.run.files import read_traces
from agentload.study.document import yaml_text
from agentload.study.parts import TraceRef
from agentload.verdict.policy import Setting
from agentload.verdict.recheck import recheck

# Below this, most of what is calibrated on would be words that agentload made up.
LITERAL_WANTED = 0.5


def calibrate(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Trace files, or names of shipped traces; those of --run when omitted."
        ),
    ] = None,
    *,
    model: Annotated[
        str | None,
        (
            "Model to calibrate: a name of the Hugging Face hub, or a folder; that of "
            "--run when omitted."
        ),
    ] = None,
    run: Annotated[
        str | None,
        (
            "Run whose decision asks for calibration: what it asked is written down, to be "
            "asked again."
        ),
    ] = None,
    db: Db = DB,
    out: Annotated[Path, "Folder for the script and its prompts."] = Path(CALIBRATED_IN),
    prompts: Annotated[int, "How many prompts to draw from the trace's calls."] = 512,
    strategy: Annotated[
        str, "tensor: one scale a layer; attn_head: one scale a head (FlashAttention 3 and later)."
    ] = "tensor",
    seed: Annotated[int, "Equal seeds draw equal prompts."] = 0,
) -> None:
    """Write a script that calibrates the scales of an FP8 KV
    cache on prompts of your own trace, at their own lengths.

    The script runs where the model is, with llm-compressor; agentload
    itself needs neither. Its result is one more arm to be asked: with
    --run, the same questions, at the lengths that were open or worse, until they decide.

    For example:

        agentload calibrate traces/mine.jsonl --model meta-llama/Llama-3.1-8B-Instruct \
            --out calibrate

        agentload calibrate --run 20261120-074205-1f3a
    """
    open_ = None if run is None else recheck(db, run, setting=Setting())
    traces = traces or list(open_.traces if open_ else ())
    model = model or (open_.model if open_ else None)
    if not traces or model is None:
        raise _missing(traces, model)
    if prompts < 1:
        raise UsageError(f"--prompts must be at least 1, got {prompts}")
    chosen = _strategy(strategy)
    trace, _ = read_traces([TraceRef(path=name) for name in traces])
    sample = draw_sample(trace, prompts, seed=seed)
    if not sample.contexts:
        raise UsageError(f"{', '.join(traces)}: no call in it to calibrate on")
    out.mkdir(parents=True, exist_ok=True)
    with (out / "prompts.jsonl").open("wb") as file:
        file.writelines(sample.lines())
    name = calibrated_name(model, chosen)
    text = script(
        sample,
        model=model,
        strategy=chosen,
        prompts="prompts.jsonl",
        output=name,
        trace=", ".join(traces),
    )
    (out / "calibrate.py").write_text(text, encoding="utf-8")
    if sample.literal_share < LITERAL_WANTED:
        print(
            f"warning: {1 - sample.literal_share:.0%} of these prompts are drawn words, and "
            "scales follow what is said: "
            "put prompts of your own into prompts.jsonl where you have them",
            file=sys.stderr,
        )
    print(
        f"{len(sample.contexts):,} of {sample.calls:,} prompts, up to {sample.longest:,} "
        f"tokens: {out / 'prompts.jsonl'}"
    )
    print(f"\nNext: cd {out} && python calibrate.py && vllm serve {name}")
    if open_ is None:
        print(
            "Then: agentload eval --endpoints bf16=URL,fp8-calibrated=URL --contexts "
            "4k..128k --items 1200"
        )
        return
    again = out / "again.yaml"
    again.write_text(yaml_text(open_.study), encoding="utf-8")
    print(f"Then, with the result served where {open_.arm} was: agentload run {again} --db {db}")


def _missing(traces: list[str], model: str | None) -> UsageError:
    """Return the error of a command line that names no trace or no model."""
    lacking = "--model is missing" if traces else "a trace is missing"
    named = " ".join(traces) or "traces/mine.jsonl"
    return UsageError(
        f"{lacking}: calibration takes prompts of a trace that holds text (import it with "
        "--with-text) and the model that reads them",
        hint=f"agentload calibrate {named} --model {model or 'MODEL'}",
    )


def _strategy(text: str) -> Strategy:
    match text:
        case "tensor" | "attn_head":
            return text
        case _:
            raise UsageError(f"--strategy is tensor or attn_head, got '{text}'")
