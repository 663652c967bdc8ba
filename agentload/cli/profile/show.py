"""Show a profile: each arm's step time, KV pool and accuracy, what was fitted, and where the numbers come from.

For example:

    agentload profile show gpt-oss-20b-h100
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Annotated

import typer

from agentload.builtin import find
from agentload.cli._output import print_json
from agentload.emulator.profile import parse
from agentload.kvmath.pool import pool_of
from agentload.model.profile import ArmProfile, Profile


def run(
    name: Annotated[str, typer.Argument(help="Profile file, or the name of a shipped profile.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
) -> None:
    profile = parse(find("profiles", name).read_text(encoding="utf-8"), name=name)
    if json:
        print_json(profile)
        return
    print("\n".join(_lines(profile)))


def _lines(profile: Profile) -> Iterator[str]:
    yield f"{profile.name}: {profile.title}"
    for arm in profile.arms:
        yield ""
        yield from _arm(arm)
    yield ""
    for said in ("published", "assumed", "fitted", "predicted", "extrapolates"):
        yield fill(getattr(profile.provenance, said), width=120, initial_indent=f"{said:<14}", subsequent_indent=" " * 14)
    for slo in profile.slos:
        limits = (("TTFT", slo.ttft_ms), ("token latency", slo.tpot_ms), ("turn", slo.turn_ms))
        said = ", ".join(f"{what} {value:g} ms" for what, value in limits if value is not None)
        yield f"SLO           {slo.name}: {said} for {slo.share:.0%} of calls ({slo.source})"
    if profile.price is not None:
        yield f"price         {profile.price.usd_per_gpu_hour:g} USD a GPU and hour ({profile.price.source})"
    for source in profile.sources:
        yield f"source        {source.key}: {source.title}, {source.where}{f', {source.date}' if source.date else ''}"


def _arm(arm: ArmProfile) -> Iterator[str]:
    made = " (synthetic: no deployment was measured)" if arm.synthetic else ""
    skipped = f", {', '.join(arm.skip_layers)} at two bytes" if arm.skip_layers else ""
    yield f"{arm.name}: KV cache {arm.kv_dtype}{skipped}, {arm.gpu.name}, {arm.server.software}{made}"
    step = arm.step
    if step is None:
        yield "  latency       unknown: this arm cannot be played"
    else:
        known = f"known up to a batch of {step.known_to_batch}"
        yield f"  token latency {step.decode_ms:g} ms + {step.decode_ms_per_token:g} ms a cached token ({known})"
        yield f"  prefill       {step.prefill_ms_per_token:g} ms a token + {step.prefill_ms_per_pair:g} ms a causal pair"
        yield f"  KV pool       {pool_of(arm).tokens:,} tokens"
    for score in arm.accuracy:
        length = f" at {score.context_tokens:,}" if score.context_tokens else ""
        yield f"  accuracy      {score.task}{length}: {score.percent:g} % ({score.source})"
    if arm.note:
        yield f"  note          {arm.note}"
