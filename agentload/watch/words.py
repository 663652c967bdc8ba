"""Word an execution, a change and an alarm, for a terminal and a webhook's message."""

from collections.abc import Iterator, Sequence
from typing import Final

from agentload.report.format import when
from agentload.watch.alarms import Alarm
from agentload.watch.books import Executed
from agentload.watch.history import UNUSABLE, Execution, RunChange
from agentload.watch.job import in_words
from agentload.watch.trends import LevelChange, Trend

# Seconds after its firing: a job of another zone is called hourly, and a stagger is no delay.
LATE_S: Final = 3900.0


def summary(executed: Executed) -> str:
    """Return the text that a person reads after an execution."""
    return "\n".join(_summary_lines(executed))


def change_words(change: RunChange) -> str:
    """Return a change with the interval that the run itself gives it."""
    value, low, high = change.relative()
    interval = f"{low:+.1%} to {high:+.1%}, {change.pairs} pairs"
    return f"{in_words(change.series)} {value:+.1%} against the reference ({interval})"


def alarm_words(alarm: Alarm) -> str:
    """Return an alarm in one sentence, with what changed just before."""
    is_named = alarm.metric is None or alarm.metric in alarm.message
    words = f"{alarm.kind}: {alarm.message}"
    if not is_named:
        words = f"{alarm.kind} {alarm.metric}: {alarm.message}"
    if alarm.kind != "changed identity":  # the message of a changed identity is the change itself
        words += _suspect_words(alarm.suspects)
    if alarm.is_open and alarm.muted_ns is not None:
        words += f"; muted until {when(alarm.muted_ns)}"
    return in_words(words)


def level_words(series: Trend, level: LevelChange) -> str:
    """Return a change of level in one sentence, with what changed just before."""
    since = f"since {when(level.at_ns)}, run {level.run_id} (p = {level.p:.2g})"
    mean = f"{in_words(series.name)}, mean {level.change:+.1%}"
    return f"{mean} {since}{_suspect_words(level.suspects)}"


def _suspect_words(suspects: Sequence[str]) -> str:
    return f"; changed just before: {'; '.join(suspects)}" if suspects else ""


def dollars(usd: float) -> str:
    """Return dollars to the cent, or with two significant digits below 1."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def outcome_words(each: Execution) -> str:
    """Return the outcome of an execution, with the reason where there is one."""
    late = f", {each.late_s / 3600:,.1f} h late" if each.late_s > LATE_S else ""
    reason = "" if each.detail.reason is None else f": {each.detail.reason}"
    match each.outcome:
        case "done" if each.detail.reference is None:
            return f"done: the reference from now on{late}"
        case "done":
            return f"done, against {each.detail.reference}{late}"
        case "accepted":
            return f"accepted as the reference{reason}"
        case "muted":
            until = when(each.detail.until_ns or each.started_ns)
            return f"{each.detail.kind} muted until {until}{reason}"
        case "void":
            return f"invalid{late}{reason}"
        case _:
            return f"{each.outcome}{late}{reason}"


def _summary_lines(executed: Executed) -> Iterator[str]:
    execution = executed.execution
    detail = execution.detail
    yield f"{execution.job}: {outcome_words(execution)}"
    if execution.run_id is not None:
        yield f"  run {execution.run_id}"
    if detail.headline is not None and execution.outcome not in UNUSABLE:
        yield f"  {detail.headline}"
    for change in detail.changes:
        yield f"  {change_words(change)}"
    if detail.usd is not None:
        yield f"  cost {dollars(detail.usd)} USD"
    for alarm in executed.raised:
        yield f"  raised: {alarm_words(alarm)}"
    for alarm in executed.closed:
        yield f"  closed: {alarm_words(alarm)}"
    news = {*executed.raised, *executed.closed}
    for alarm in executed.alarms:
        if alarm.is_open and alarm not in news:
            yield f"  still open: {alarm_words(alarm)}"
