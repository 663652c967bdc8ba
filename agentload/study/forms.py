"""Map each verb to the kinds of studies that it takes, with their fields as its options.

A field for which a verb has no option keeps its default.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from msgspec import field

from agentload.model.record import Record
from agentload.study.fields import Flag, Part, flags, server_flags
from agentload.study.kinds import SLO, Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Load, TraceRef, Virtual
from agentload.study.quantity import WORDS, Text, number, plain, with_unit

MINUTES: Final = Text(
    read=lambda text, option: 60 * number(text, option, unit="min"),
    write=lambda value: plain(value / 60),
    shown="<time>",
    in_words=lambda value: with_unit(value, "s"),
)


class Form(Record, eq=False):
    """One kind of study as a verb takes it."""

    kind: type[Study]
    servers: type[Part]
    switch: str | None = None
    """Option that selects this kind; None: the verb's kind without such an option."""
    without: frozenset[str] = frozenset()
    """Fields, or parts, for which the verb has no options."""
    other: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By field: what differs from its declaration, such as option, help or default."""

    @cache  # noqa: B019  # forms are constants of this module
    def flags(self) -> tuple[Flag, ...]:
        """Return the options: positional ones, those of the servers, then all others."""
        own = flags(self.kind)
        positional = [flag for flag in own if flag.said.positional]
        others = [flag for flag in own if not flag.said.positional]
        in_order = (*positional, *server_flags(self.servers), *others)
        return tuple(
            replace(flag, **self.other.get(flag.path[-1], {}))
            for flag in in_order
            if not self.without & {*flag.path}
        )


_LIVE_ONLY: Final = frozenset(
    {"tokenizer", "request", "aa", "on_dead", "workers", "on", "nodes", "share", "keep_raw"}
)
_LISTED: Final = {
    "option": "--trace",
    "text": replace(WORDS, write=lambda refs: ",".join(each.path for each in refs)),
}
_TRACE: Final = {
    **_LISTED,
    "default": (TraceRef(path="chat"),),
    "help": "--concurrency: whose sessions run; several, separated by commas, as one mix.",
}

_ARMS: Final = {
    "help": (
        "--profile: arms of the profile, such as bf16,fp8; all that have a latency when omitted."
    )
}

FORMS: Final[Mapping[str, tuple[Form, ...]]] = {
    "replay": (Form(kind=Replay, servers=Live),),
    "simulate": (
        Form(
            kind=Replay,
            servers=Virtual,
            without=_LIVE_ONLY,
            other={
                "slo": {
                    "help": (
                        "--find, --capacity: limits that a turn must hold: "
                        "ttft=2s,tpot=50ms,turn=30s."
                    )
                }
            },
        ),
        Form(
            kind=Search,
            servers=Virtual,
            switch="--find",
            without=frozenset({"start", "machines", "request"}),
            other={
                "trial_s": {
                    "option": "--minutes",
                    "help": "Virtual minutes that each load is tried for.",
                    "text": MINUTES,
                    "default": 900.0,
                },
                "slo": {"default": SLO},
            },
        ),
    ),
    "sweep": (
        Form(kind=Sweep, servers=Live, switch="--contexts"),
        Form(
            kind=Search,
            servers=Live,
            switch="--concurrency",
            without=frozenset({*Load.__struct_fields__, "find", "restarts"}) - {"wait_cap_s"},
            other={
                "traces": _TRACE,
                "trial_s": {"option": "--seconds", "help": "--concurrency: length of each trial."},
                "slo": {"help": "--concurrency: limits: ttft=2s,tpot=50ms,turn=30s."},
                "share": {"help": "--concurrency: share of the turns that must hold."},
            },
        ),
    ),
    "eval": (
        Form(
            kind=Ask,
            servers=Live,
            switch="--endpoints",
            without=frozenset({"noise", "restarts"}),
            other={
                "endpoints": {
                    "help": (
                        "a=URL,b=URL, an arms file (YAML), or emulated:PROFILE[/ARM+ARM]; the "
                        "first is the reference."
                    )
                },
                "traces": _LISTED,
            },
        ),
        Form(
            kind=Ask,
            servers=Virtual,
            switch="--profile",
            without=frozenset(
                {
                    "machines",
                    "own",
                    "own_format",
                    "concurrency",
                    "thinking_tokens",
                    "tokenizer",
                    "request",
                    "timeouts",
                }
            ),
            other={
                "noise": {
                    "help": (
                        "--profile: draw the answers; --no-noise: right as often as the table "
                        "says, evenly."
                    )
                },
                "profile": {
                    "help": (
                        "Instead: the answers that a profile's accuracy table foretells, in "
                        "virtual time."
                    )
                },
                "arms": _ARMS,
                "traces": _LISTED,
            },
        ),
    ),
    "decide": (
        Form(kind=Decide, servers=Live, switch="--endpoints", without=frozenset({"restarts"})),
        Form(
            kind=Decide,
            servers=Virtual,
            switch="--profile",
            without=frozenset({"machines", "tokenizer", "request"}),
            other={
                "profile": {
                    "help": "Instead: a profile, all of it in virtual time, answers included."
                },
                "arms": _ARMS,
            },
        ),
    ),
    "probe": (
        Form(
            kind=Probe,
            servers=Live,
            without=frozenset({"noise", "force", "launch", "restarts", "logs", "start_timeout_s"}),
        ),
    ),
}


def form_of(made: Study) -> tuple[str, Form]:
    """Return the verb that runs a study, and the form of the study there."""
    wanted = (type(made), type(made.servers))
    every = ((verb, form) for verb, forms in FORMS.items() for form in forms)
    return next((verb, form) for verb, form in every if (form.kind, form.servers) == wanted)
