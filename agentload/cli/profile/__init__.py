"""Look at the deployments that can be emulated, and fit one of your own."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from agentload.builtin import names
from agentload.cli._options import Database, Run
from agentload.cli._print import print_json
from agentload.emulator.profile import read, text
from agentload.evidence.twin import profile_of_run
from agentload.kvmath.pool import pool_of
from agentload.model.profile import ArmProfile, Profile
from agentload.model.record import Record
from agentload.store.runs import run_named


class Listed(Record):
    """One profile at a glance."""

    name: str
    title: str
    arms: tuple[str, ...]
    """Those that have a latency and can be played."""
    accuracy_only: tuple[str, ...]


def list_(*, json: Annotated[bool, "Print the list as JSON."] = False) -> None:
    """List the profiles: what was published or fitted about a deployment, arm by arm."""
    listed = tuple(map(_line_of_list, names("profiles")))
    if json:
        print_json(listed)
        return
    width = max((len(each.name) for each in listed), default=0)
    for each in listed:
        print(f"{each.name:<{width}}  {', '.join(each.arms) or '–'}")
        print(f"{'':<{width}}  {each.title}")
        if each.accuracy_only:
            print(f"{'':<{width}}  accuracy only: {', '.join(each.accuracy_only)}")


def _line_of_list(name: str) -> Listed:
    """Return what the list says of a profile."""
    profile = read(name)
    return Listed(
        name=name,
        title=profile.title,
        arms=tuple(arm.name for arm in profile.arms if arm.step is not None),
        accuracy_only=tuple(arm.name for arm in profile.arms if arm.step is None),
    )


def show(
    name: Annotated[str, typer.Argument(help="Profile file, or the name of a shipped profile.")],
    *,
    json: Annotated[bool, "Print the profile as JSON."] = False,
) -> None:
    """Show a profile: each arm's step time, KV pool and
    accuracy, what was fitted, and where the numbers come from.

    For example:

        agentload profile show gpt-oss-20b-h100
    """
    profile = read(name)
    if json:
        print_json(profile)
        return
    print("\n".join(_profile_lines(profile)))


def _profile_lines(profile: Profile) -> Iterator[str]:
    """Yield all that is said of a profile."""
    yield f"{profile.name}: {profile.title}"
    for arm in profile.arms:
        yield ""
        yield from _arm(arm)
    yield ""
    for said in ("published", "assumed", "fitted", "predicted", "extrapolates"):
        yield fill(
            getattr(profile.provenance, said),
            width=120,
            initial_indent=f"{said:<14}",
            subsequent_indent=" " * 14,
        )
    for slo in profile.slos:
        limits = (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("turn", slo.turn_ms))
        said = ", ".join(f"{what} {value:g} ms" for what, value in limits if value is not None)
        yield f"SLO           {slo.name}: {said} for {slo.share:.0%} of calls ({slo.source})"
    if profile.price is not None:
        yield (
            f"price         {profile.price.usd_per_gpu_hour:g} USD a GPU and hour "
            f"({profile.price.source})"
        )
    for source in profile.sources:
        yield (
            f"source        {source.key}: {source.title}, "
            f"{source.where}{f', {source.date}' if source.date else ''}"
        )


def _arm(arm: ArmProfile) -> Iterator[str]:
    made = " (a prior that nobody has measured: see assumed, predicted)" if arm.synthetic else ""
    skipped = f", {', '.join(arm.skip_layers)} at two bytes" if arm.skip_layers else ""
    yield (
        f"{arm.name}: KV cache {arm.kv_dtype}{skipped}, {arm.gpu.name}, {arm.server.software}{made}"
    )
    step = arm.step
    if step is None:
        yield "  latency       unknown: this arm cannot be played"
    else:
        known = f"known up to a batch of {step.known_to_batch}"
        yield (
            f"  TPOT {step.decode_ms:g} ms + {step.decode_ms_per_token:g} ms a cached "
            f"token ({known})"
        )
        yield (
            f"  prefill       {step.prefill_ms_per_token:g} ms a token + "
            f"{step.prefill_ms_per_pair:g} ms a causal pair"
        )
        if arm.encoder is not None:
            yield (
                f"  images        {arm.encoder.ms_per_token:g} ms a token to encode one + "
                f"{arm.encoder.ms_per_pair:g} ms a pair of its tokens"
            )
        yield f"  KV pool       {pool_of(arm).tokens:,} tokens"
        yield from _extras(arm)
    for score in arm.accuracy:
        length = f" at {score.context_tokens:,}" if score.context_tokens else ""
        yield f"  accuracy      {score.task}{length}: {score.percent:g}% ({score.source})"
    if arm.note:
        yield f"  note          {arm.note}"


def _extras(arm: ArmProfile) -> Iterator[str]:
    """Say what an arm has besides its GPU's KV pool: drafted tokens, a second tier."""
    drafting, tier = arm.speculation, arm.server.offload
    if drafting is not None:
        yield (
            f"  drafts        {drafting.drafts} tokens a step ({drafting.method}), each kept in "
            f"{drafting.acceptance:.1%} if the one before was; {drafting.draft_ms:g} ms a step"
        )
    if tier is not None:
        after = "kept" if tier.outlives_restarts else "lost"
        yield (
            f"  second tier   {tier.gib:g} GiB of KV blocks outside the GPU, read back at "
            f"{tier.gb_per_s:g} GB/s, {after} when the server restarts"
        )


def fit(
    database: Database,
    *,
    like: Annotated[
        str, "Profile of the same model on the same hardware, with arms of the same names."
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Profile file to write.")],
    run: Run = None,
    json: Annotated[bool, "Print coefficients and errors as JSON."] = False,
) -> None:
    """Fit a profile to a measured run, so that your own server can be simulated.

    Hardware, model geometry and KV configuration are taken from a profile that is like
    it; the timing coefficients of each arm come from the run's calls. The error on a
    quarter of the observations that were left out is printed and written into the file.

    For example:

        agentload profile fit agentload.duckdb --like llama-3.1-8b-h100 -o profiles/mine.yaml
    """
    made, fits = profile_of_run(database, run_named(database, run), like=like, name=out.stem)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text(made), encoding="utf-8")
    if json:
        print_json(fits)
        return
    for arm, found in fits.items():
        step = found.step
        print(f"{arm}: {found.calls} calls; error is the median over what was left out")
        decode = f"{step.decode_ms:.4g} ms + {step.decode_ms_per_token:.4g} ms a cached token"
        prefill = (
            f"{step.prefill_ms_per_token:.4g} ms a token + {step.prefill_ms_per_pair:.4g} ms a pair"
        )
        print(f"  TPOT           {decode}  (error {found.itl_error.median:.1%})")
        print(f"  prefill        {prefill}  (error {found.ttft_error.median:.1%})")
        for note in found.notes:
            print(f"  {note}")
    print(f"{out}\n\nNext: agentload simulate TRACE --profile {out}")
