"""Verbs whose options are the fields of a study."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentload.cli._lazy import needs
from agentload.cli._named import check, gate
from agentload.cli._options import FailOn, Out
from agentload.cli._print import rephrase, worded_by
from agentload.cli._study import DB, RUN_ID, Db, Into, Resume, runs
from agentload.errors import AgentloadError, EndpointError, LaunchError
from agentload.run.files import read_study
from agentload.run.place import StudyPlace, place_of
from agentload.study.fields import in_fields
from agentload.study.forms import form_of
from agentload.study.kinds import Decide, Replay, Study


@needs({"print_": ("on",), "image": ("print_",)})
@runs("replay", "resume")
def replay(
    study: Study,
    place: StudyPlace,
    *,
    dry_run: Annotated[bool, "Print the plan and what it costs; send nothing."] = False,
    print_: Annotated[
        Literal["kuberay"] | None,
        typer.Option(
            "--print", help="--on: print a RayJob that plays this on Kubernetes; play nothing."
        ),
    ] = None,
    image: Annotated[str | None, "--print: image with agentload[ray] for its pods."] = None,
    block: Annotated[
        bool, "Print each arm's figures as a block, too, named as vllm bench does."
    ] = False,
    json: Annotated[bool, "Print the summary as JSON."] = False,
) -> None:
    """Replay a trace against endpoints and store every call.

    The trace is cut into blocks of whole sessions. Each block is played on every arm, in a
    random order, and each finished pair of blocks is stored. Ctrl-C waits for the calls in
    flight, stores them and exits with 130; `--resume` continues from there.

    For example:

        agentload replay demo-rag --endpoints emulated:llama-3.1-8b-h100 --db demo.duckdb

        agentload replay rag \
            --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --sessions 16 \
            --wait-cap user=5

        agentload replay traces/cron.jsonl --endpoints arms.yaml --sessions 8 --wait-cap user=20 \
            --dry-run

        agentload replay rag --endpoints arms.yaml --launch --restarts 3

        agentload replay rag --endpoints bf16=http://10.0.0.1:8000/v1,fp8=http://10.0.0.2:8000/v1 \
            --design parallel --swap

        agentload replay code --endpoints arms.yaml --capacity 24 --duration 3600 --pairs 2 \
            --wait-cap user=60 --dry-run

        agentload replay chat --endpoints arms.yaml --rate 0.5 --ramp 120 --burst 5x10/60

        agentload replay rag --endpoints arms.yaml --num-prompts 150 --rate inf --pairs 1 --block

        agentload replay chat --endpoints arms.yaml --sessions 4000 --on ray:10.0.0.1:6379 \
            --share /mnt/shards

        agentload replay chat --endpoints arms.yaml --sessions 4000 --on here --nodes 4
    """
    if print_ is not None:
        from agentload.remote.kuberay import rayjob  # late: few replays are for Kubernetes

        assert isinstance(study, Replay), study
        print(rayjob(study, image=image, database=place.database), end="")
        return
    _carry_out(study, place, is_dry=dry_run, as_json=json, as_block=block)


@runs("simulate", "into")
def simulate(
    study: Study,
    place: StudyPlace,
    *,
    block: Annotated[
        bool, "Print each arm's figures as a block, too, named as vllm bench does."
    ] = False,
    json: Annotated[bool, "Print the summary as JSON."] = False,
) -> None:
    """Play a trace on a profile in virtual time: a day of
    agents in seconds, with the rows that a live run stores.

    No server is started and nothing sleeps. The same trace, profile, options and seed give
    the same bytes, so a simulation asked for twice is one run. Reports label it as simulated.

    For example:

        agentload simulate rag --profile llama-3.1-8b-h100 --db agentload.duckdb

        agentload simulate traces/rag.jsonl --profile gpt-oss-20b-h100 --arms bf16,fp8-skip-sw \
            --sessions 16

        agentload simulate code --profile llama-3.1-8b-h100 --max-context 128k \
            --find max-concurrency --slo ttft=3s,tpot=50ms

        agentload simulate code --profile llama-3.1-8b-h100 --max-context 128k --arms bf16,fp8 \
            --capacity 24 --pairs 2 --wait-cap user=60

        agentload simulate chat --profile llama-3.1-8b-h100 --rate 0.5 --ramp 120 --burst 5x10/60

        agentload simulate rag --profile llama-3.1-8b-h100 --arms bf16,fp8 --design parallel \
            --swap --machines m1=1,m2=1.08
    """
    _carry_out(study, place, is_dry=False, as_json=json, as_block=block)


@runs("sweep", "into")
def sweep(
    study: Study,
    place: StudyPlace,
    *,
    dry_run: Annotated[bool, "--contexts: print the plan and what it costs; send nothing."] = False,
    json: Annotated[bool, "Print the result as JSON."] = False,
) -> None:
    """Measure how latency grows with context, or how
    many sessions an endpoint carries before trouble.

    With --contexts, calls of growing length run one at a time, the arms interleaved:
    the lines through their token latencies say where one arm overtakes another. With
    --concurrency, sessions of a trace run side by side, ever more of them, until the
    server preempts, queues, fails or breaks the service level; the number that just
    holds is bracketed. With --into either is added to a replay, for its report.

    For example:

        agentload sweep --contexts 1k..64k --endpoints endpoints.yaml

        agentload sweep --contexts 512..8k --endpoints endpoints.yaml --launch \
            --into 20261120-074205-1f3a

        agentload sweep --concurrency --trace traces/chat.jsonl --endpoints endpoints.yaml \
            --slo ttft=2s,tpot=50ms
    """
    _carry_out(study, place, is_dry=dry_run, as_json=json)


@runs("eval", "resume", "into")
def eval_(
    study: Study,
    place: StudyPlace,
    *,
    dry_run: Annotated[bool, "Print what would be asked and what it costs; send nothing."] = False,
    json: Annotated[bool, "Print the summary as JSON."] = False,
) -> None:
    """Ask every endpoint the same questions and grade
    the answers: is a cheaper KV cache still right?

    Items are made from a seed, with nothing to download: equal bytes, temperature 0 and
    the same seed on every endpoint. The first endpoint is the reference. What was answered
    is stored at once; Ctrl-C lets what is in flight come to its end; `--resume` continues.

    For example:

        agentload eval --endpoints emulated:llama-3.1-8b-h100-old-kernel --contexts 8k..128k \
            --items 100 --db demo.duckdb

        agentload eval --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 \
            --contexts 4k..128k --items 1200 --aa bf16

        agentload eval --endpoints arms.yaml --tasks needle,tool_log,mrcr_like-4 \
            --contexts 32k,64k --depths 5 --dry-run

        agentload eval --endpoints endpoints.yaml --launch --into 20261120-074205-1f3a
    """
    _carry_out(study, place, is_dry=dry_run, as_json=json)


@runs("decide", "resume")
def decide(
    study: Study,
    place: StudyPlace,
    *,
    out: Out = None,
    fail_on: FailOn = None,
    dry_run: Annotated[
        bool, "Say what the budget can settle, and what it takes; send nothing."
    ] = False,
    json: Annotated[bool, "Print the decision file and what it took as JSON."] = False,
) -> None:
    """Decide which arm to run: one command, one budget, one answer.

    Asks the cheapest question that can still change the decision,
    again and again: block pairs for speed, a search for capacity where
    --slo or --agents is given, graded answers only for what pays. It ends when
    the decision is made or the budget is spent, and then says what would settle
    the rest, and its price. Ctrl-C decides on what is there; --resume continues.

    For example:

        agentload decide chat --profile llama-3.1-8b-h100 --arms bf16,fp8 --slo ttft=2s,tpot=40ms \
            --agents 400

        agentload decide traces/mine.jsonl --endpoints arms.yaml --slo ttft=2s,tpot=50ms \
            --agents 400 --price 2.50 --budget 45m

        agentload decide rag \
            --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --dry-run
    """
    from agentload.cli._decide import decide as decided  # late: no other verb here needs it

    words = gate(fail_on)
    assert isinstance(study, Decide), study
    document = decided(study, place, is_dry=dry_run, as_json=json, out=out)
    if document is not None:
        check(document, words)


@runs("probe")
def probe(
    study: Study,
    place: StudyPlace,
    *,
    gate: Annotated[bool, "Exit with 3 if an arm is not fit for a comparison."] = False,
    json: Annotated[bool, "Print the findings as JSON."] = False,
) -> None:
    """Check what a comparison rests on: that the prefix cache works, and that the KV dtype
    changes no short answer.

    Each arm gets one long prompt twice: the second must come from the prefix cache, by its usage
    or by the server's counters. One more prompt goes to all arms in turn: none may find it in the
    cache of another. Then every arm answers the same short prompts greedily: how many first tokens
    agree with those of the arm whose cache has 16 bits tells a shifted cache from a broken one.

    For example:

        agentload probe --endpoints endpoints.yaml
    """
    _carry_out(study, place, is_dry=False, as_json=json, is_gated=gate)


def run(
    *,
    file: Annotated[Path, typer.Argument(help="The study, in YAML or JSON.")],
    db: Db = DB,
    resume: Resume = None,
    into: Into = None,
    run_id: Annotated[str | None, RUN_ID] = None,
    dry_run: Annotated[bool, "Print the plan and what it costs; send nothing."] = False,
    json: Annotated[bool, "Print the summary as JSON."] = False,
) -> None:
    """Run a study from a file: what a replay, a sweep, a search, questions or a probe is, as data.

    Every verb that measures something prints its study with --print-study, all
    defaults written out, traces with what they hold. The file says what is
    measured; where the rows go is said here. Paths in it are relative to the file.

    For example:

        agentload replay rag --endpoints arms.yaml --sessions 16 --print-study > nightly.yaml

        agentload run nightly.yaml --db agentload.duckdb

        agentload run nightly.yaml --resume 20261120-074205-1f3a
    """
    study = read_study(file)
    known = {flag.option: flag for flag in form_of(study)[1].flags()}
    with worded_by(partial(in_fields, known=known)):
        try:
            place = place_of(study, db=db, run_id=run_id, resume=resume, into=into)
            _carry_out(study, place, is_dry=dry_run, as_json=json)
        except AgentloadError as error:
            if not isinstance(error, EndpointError | LaunchError):  # these quote a server
                error.message = in_fields(error.message, known)
            if error.hint is not None:
                error.hint = rephrase(error.hint)
            raise


def _carry_out(study: Study, place: StudyPlace, **how: bool) -> None:
    from agentload.cli._carry import carry_out  # late: help and refused options need none of it

    carry_out(study, place, **how)
