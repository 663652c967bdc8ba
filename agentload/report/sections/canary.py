"""Plan the canary of the chosen arm.

It says how its servers start, their share of the sessions, and the limits that take it back.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from advisor.estimate import present
from advisor.evidence import Arm, Floats
from agentload import documents
from agentload.report import format as say
from agentload.report import labels
from agentload.report.commands import level_of_run
from agentload.report.parts import Limit, Rollout
from agentload.report.sections.view import View
from agentload.serve.facts import FIRST_TOKEN_S

if TYPE_CHECKING:
    from jinja2 import Environment

# a quarter of the day: enough answers to judge by, and
# a good morning does not hide that things got worse
WINDOW: Final = "6h"
# An expression is evaluated every minute: a limit that chance
# exceeds once in a thousand times would page within the day.
STANDARD_ERRORS: Final = 4
# A pool that is large enough does not preempt; from five a minute on it is no accident.
PREEMPTIONS_PER_MIN: Final = 5
# Share of first tokens late on the canary alone: users would
# notice it, and two equal replicas differ by less.
LATE_SHARE: Final = 0.05
# MLPerf Inference bounds generated tokens to 90-110% of
# the reference: a broken model that stops early is fast.
LENGTH_CHANGE: Final = 0.1
# Loops end at the length limit; two points more of them than the stable servers, beyond chance.
LENGTH_ENDS: Final = 0.02
# Answers of agents are long-tailed: where the run has
# none, a standard deviation of one and a half means.
LENGTH_SPREAD: Final = 1.5
LEAST_SHARE: Final = 0.01  # a share in which nothing was seen yet may still be above zero


def limits(view: View) -> tuple[Limit, ...]:
    """List the conditions that end the canary of the chosen arm."""
    written = (
        _environment()
        .get_template("limits.yaml.j2")
        .render(
            window=WINDOW,
            standard_errors=STANDARD_ERRORS,
            least_share=LEAST_SHARE,
            late_s=_late_s(view),
            late_share=LATE_SHARE,
            preemptions=_preemptions_per_min(view),
            length_change=LENGTH_CHANGE,
            shortest=1 - LENGTH_CHANGE,
            longest=1 + LENGTH_CHANGE,
            deviation=STANDARD_ERRORS * _length_spread(view),
            cut_share=LENGTH_ENDS,
        )
    )
    return msgspec.convert(documents.own(written), tuple[Limit, ...])


@cache
def _environment() -> "Environment":
    from agentload.report.templating import environment  # late: most documents have no canary

    made = environment(autoescape=False)  # YAML of our own words, and of numbers
    made.filters |= {
        "number": say.number,
        "percent": say.percent,
        "points": lambda share: say.number(100 * share),
    }
    return made


def _late_s(view: View) -> float:
    """Return the bound of vLLM's histogram, in seconds, above which a first token is late.

    By the service level of the policy or of the run, else by the p95 of the reference.
    """
    levels = present(map(view.policy.slo, view.workloads))
    agreed = present(slo.ttft_ms for slo in levels)
    of_run = level_of_run(view.facts)
    if not levels and of_run is not None and of_run.ttft_ms is not None:
        agreed = [of_run.ttft_ms]
    seen = _of_reference(view, "ttft_ms")
    late_ms = 1000.0
    if agreed:
        late_ms = min(agreed)
    elif seen.size:
        late_ms = float(np.quantile(seen, 0.95))
    later = (bound for bound in FIRST_TOKEN_S if bound * 1000 >= late_ms)
    return next(later, FIRST_TOKEN_S[-1])


def _length_spread(view: View) -> float:
    """Return the standard deviation of answer lengths over their mean, and no less than 1."""
    tokens = _of_reference(view, "output_tokens")
    if not tokens.size or tokens.mean() <= 0:
        return LENGTH_SPREAD
    return max(1.0, float(tokens.std() / tokens.mean()))


def _of_reference(view: View, column: str) -> Floats:
    columns = [getattr(calls, column) for calls in view.calls(view.reference)]
    joined = np.concatenate([np.zeros(0), *columns])
    values: Floats = joined.astype(np.float64)
    return values[np.isfinite(values)]


def _preemptions_per_min(view: View) -> float:
    seen = view.evidence.telemetry(None, view.decision.choice.arm)
    usual = float(PREEMPTIONS_PER_MIN)
    if seen is None or seen.preemptions is None or not seen.minutes:
        return usual
    # Twice what the run itself showed, where it showed any.
    twice = round(2 * seen.preemptions / seen.minutes)
    return max(usual, float(twice))


# Where the number of replicas next to it is unknown: one part
# in ten bounds the harm. A day holds one cycle of the load.
CANARY_PERCENT: Final = 10
CANARY_HOURS: Final = 24


def roll_back(view: View) -> str:
    """Say in one line what ends the canary; empty when there is none."""
    plan = rollout(view)
    if not plan:
        return ""
    return " · ".join(limit.text for limit in plan.limits)


def rollout(view: View) -> Rollout | None:
    """Plan the canary of the chosen arm; None unless the decision is to use it."""
    choice = view.decision.choice
    if choice.verdict != "use" or choice.arm == view.reference or view.compares_runs:
        return None
    deployment = view.evidence.deployment
    arm = view.evidence.arm(choice.arm)
    return Rollout(
        arm=arm.name,
        label=labels.arm(arm.name),
        reference=view.against,
        kind=view.decision.kind,
        model=arm.weights or view.evidence.model.name,
        version=deployment.version,
        gpus_per_replica=deployment.gpus_per_replica,
        arguments=_arguments(view, arm, most=choice.holds_to),
        is_whole=arm.all_flags,
        reference_arguments=_arguments(view, view.evidence.arm(view.reference)),
        percent=_percent(view),
        hours=CANARY_HOURS,
        limits=limits(view),
    )


def _percent(view: View) -> int:
    """Return the percent of sessions that load the canary's replica as much as today's each.

    With fewer it shows nothing of its limit.
    """
    stable = view.capacity(view.reference)
    at_peak = view.evidence.deployment.replicas
    if stable is not None and stable.replicas_at_peak is not None:
        at_peak = max(at_peak, stable.replicas_at_peak)
    if at_peak > 1:
        return max(1, round(100 / (at_peak + 1)))
    return CANARY_PERCENT


def _arguments(view: View, arm: Arm, *, most: float | None = None) -> tuple[str, ...]:
    """Return the arguments of an arm's server.

    A server that is used for contexts up to *most* takes no longer ones.
    """
    deployment = view.evidence.deployment
    out = ["--served-model-name", view.evidence.model.name] if arm.weights else []
    if deployment.tensor_parallel > 1:
        out += ["--tensor-parallel-size", str(deployment.tensor_parallel)]
    ends = [end for end in (deployment.max_model_len, most) if end]
    if ends:
        out += ["--max-model-len", str(int(min(ends)))]
    out += ["--kv-cache-dtype", arm.expected_dtype or arm.observed_dtype or "auto"]
    if arm.skip_layers:
        out += ["--kv-cache-dtype-skip-layers", *arm.skip_layers]
    return (*out, *arm.flags)
