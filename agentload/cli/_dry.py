"""Say what a plan would do."""

from __future__ import annotations

from agentload.dispatch.stretches import stretches, where
from agentload.layout.cost import Cost, about
from agentload.layout.long_run import Fills
from agentload.layout.plan import starts_of
from agentload.model.controls import is_control
from agentload.model.plan import Plan


def describe(plan: Plan, cost: Cost, fills: Fills | None = None) -> str:
    """Return the plan and what it costs, for people; *fills* where it is laid out to fill pools."""
    moves = len(stretches(plan.rounds)) - 1
    orders = [" + ".join(play.arm for play in round_.plays) for round_ in plan.rounds]
    shown = " → ".join(orders[:12]) + (" → …" if len(orders) > 12 else "")
    pairs = len({play.pair for round_ in plan.rounds for play in round_.plays})
    starts = starts_of(plan)
    met = sum(not is_control(arm) for arm in plan.arms) - 1  # each once more to be met, but for the one that plays first
    calls = ", ".join(f"{arm} {count:,}" for arm, count in cost.calls_by_arm.items())
    return "\n".join(
        (
            f"plan      {plan.design}, {len(plan.blocks)} blocks, {pairs} pairs, {cost.rounds} rounds",
            f"order     {shown}",
            *([f"starts    {starts + met} of servers, one at a time; their time is not counted"] if starts else []),
            *([f"machines  {_places(plan)}"] if moves else []),
            f"calls     {calls}",
            f"tokens    {cost.prompt_tokens:,} in, {cost.output_tokens:,} out",
            f"duration  {about(cost.minutes)} (with {cost.assumed})",
            *([f"block     {fills.lasts_minutes:.0f} min each: {fills.because}"] if fills is not None else []),
            *(f"pool      {line}" for line in (fills.lines() if fills is not None else ())),
            *([f"warning   {short}"] if fills is not None and (short := fills.warning()) is not None else []),
            "nothing was sent (--dry-run)",
        )
    )


def _places(plan: Plan) -> str:
    return ", then ".join(", ".join(f"{arm} on {on}" for arm, on in where(stretch).items()) for stretch in stretches(plan.rounds))
