"""Make a twin whose steps take longer, or shorter, by one factor."""

from dataclasses import fields, replace

from agentload.evidence.twin import Twin
from agentload.model.profile import StepTime


def slower(twin: Twin, factor: float) -> Twin:
    """Return a twin whose steps take *factor* times as long."""
    step = twin.arm.step
    assert step is not None, "a twin is fitted by its step times"
    known = {each.name: getattr(step, each.name) for each in fields(StepTime)}
    times = {
        name: factor * value for name, value in known.items() if "_ms" in name and value is not None
    }
    return replace(twin, arm=replace(twin.arm, step=replace(step, **times)))
