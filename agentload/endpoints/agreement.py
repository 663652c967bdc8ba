"""Check servers before they are compared: against the arms file, and against each other."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from agentload.endpoints.endpoint import Endpoint, without_credentials
from agentload.endpoints.facts import (
    COMMANDED,
    SAME_POOL,
    ExpectationCheck,
    Facts,
    changes,
    checks,
    is_near,
    is_same_configuration,
)
from agentload.endpoints.identity import Identity
from agentload.errors import EndpointError
from agentload.kvmath.gpus import gpu_named
from agentload.model.controls import SAME, is_control, original, replica
from agentload.model.kv import NAMED
from agentload.model.record import Record

SHARED: Final = ("version", "max_model_len", "gpu_memory_utilization")
"""Facts that change latencies and pools whatever is compared."""
SHARED_SETTINGS: Final = ("max_num_batched_tokens", "max_num_seqs", "kv_cache_memory_bytes")


class Agreement(Record):
    """How far the servers' own reports agree with the arms file."""

    mismatches: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Expectations that no server confirms or denies."""
    equal: tuple[tuple[str, str], ...] = ()
    """Pairs of arms that report the same configuration."""
    apart: tuple[str, ...] = ()
    """Differences between arms that the arms file does not ask for."""
    unseen: tuple[str, ...] = ()
    """What of the servers' work cannot be observed."""

    def caveats(self) -> tuple[str, ...]:
        """Return all findings as sentences."""
        same = (f"{one} and {other} {SAME}" for one, other in self.equal)
        return (*self.mismatches, *self.unknown, *same, *self.apart, *self.unseen)

    def require(self) -> None:
        """Raise EndpointError if a server contradicts an expectation."""
        if self.mismatches:
            raise EndpointError(
                "; ".join(self.mismatches),
                hint="fix the server, the arm's name or the arms file; --force measures it all "
                "the same",
            )


def agreement(endpoints: Sequence[Endpoint], identities: Mapping[str, Identity]) -> Agreement:
    """Compare every arm with its expectations and with the other arms.

    Controls are left out of the latter: a control is the same server as its arm.
    """
    facts = {endpoint.name: identities[endpoint.name].facts() for endpoint in endpoints}
    own = [endpoint for endpoint in endpoints if not is_control(endpoint.name)]
    mismatches: list[str] = []
    denied_names: list[str] = []
    unknown: list[str] = []
    unseen: list[str] = []
    for endpoint in endpoints:
        name = endpoint.name
        for check in checks(endpoint.expect, facts[name]):
            if check.agrees is None:
                unknown.append(f"{name}: {check}")
            elif not check.agrees:
                mismatches.append(f"{name}: {check}")
        mismatches += _another_card(endpoint, identities[name])
        denied_names += [f"{name}: {check}" for check in _denied(endpoint, facts[name])]
        unseen += _unseen(endpoint, identities[name])
    equal = [
        (one.name, other.name)
        for one, other in combinations(own, 2)
        if _is_same(one, other, facts[one.name], facts[other.name])
    ]
    return Agreement(
        mismatches=(*mismatches, *denied_names),
        unknown=tuple(unknown),
        equal=tuple(equal),
        apart=tuple(_apart(own, facts)),
        unseen=tuple(unseen),
    )


def _another_card(endpoint: Endpoint, identity: Identity) -> Iterator[str]:
    """Describe a GPU that the arms file names and the server's machine does not have.

    An H100 may be any H100: what tells its forms apart is for the arms file to say or to leave out.
    """
    there = str(identity.settings.get("gpu", ""))
    seen = {_family(each) for each in there.split(", ")} - {None}
    named = _family(endpoint.gpu or "")
    if named is not None and seen and named not in seen:
        yield f"{endpoint.name}: gpu: expected {endpoint.gpu}, the server's machine has {there}"


def _family(name: str) -> str | None:
    """Return `H100` for each form of it; None for a card that is not known."""
    card = gpu_named(name)
    return None if card is None else card.name.partition("-")[0]


def _denied(endpoint: Endpoint, facts: Facts) -> list[ExpectationCheck]:
    """Return what an arm's name says of it and its server denies."""
    return [check for check in checks(_by_name(endpoint), facts) if check.agrees is False]


KERNELS: Final = ("attention_backend", "flash_version")
"""Facts that depend on a server's machine and do not vary from start to start."""


def unlike(arm: str, replicas: Sequence[Facts]) -> Iterator[str]:
    """Describe each replica of an arm that is another server than the first.

    With such replicas, a start's noise could not be separated from their differences.
    """
    first = replicas[0]
    for number, facts in enumerate(replicas[1:], start=2):
        differs = list(changes(first, facts, (*COMMANDED, *KERNELS)))
        pools = first.get("pool_tokens"), facts.get("pool_tokens")
        if None not in pools and not is_near(*pools):
            differs.append(
                f"a KV pool of {pools[1]} tokens, not of {pools[0]} (more than "
                f"{SAME_POOL:.0%} apart)"
            )
        if differs:
            yield (
                f"{replica(number)} of {arm} is another server than {replica(1)}: "
                f"{', '.join(differs)}"
            )


def shared_process(arm: str, replicas: Sequence[Facts]) -> str | None:
    """Describe two replicas of an arm that are one server behind two URLs; None if none are.

    Equal start times of the process, to a hundredth of a second, give such a pair away.
    """
    began = [facts.get("process_start_s") for facts in replicas]
    for (one, first), (other, second) in combinations(enumerate(began, start=1), 2):
        if first is not None and first == second:
            return (
                f"{replica(one)} and {replica(other)} of {arm} are one server: both say that it "
                f"was started at {first}"
            )
    return None


def expectations(endpoint: Endpoint, facts: Facts) -> dict[str, object]:
    """Return what an arm is expected to be: by the arms file, and by its name if denied.

    The name counts where the server contradicts it and is measured all the same (`--force`).
    """
    by_name = _by_name(endpoint) if _denied(endpoint, facts) else {}
    return {**endpoint.expect, **by_name}


def _by_name(endpoint: Endpoint) -> dict[str, object]:
    """Return what an arm's name says of it: an arm called fp8 is expected to be FP8."""
    dtype = NAMED.get(original(endpoint.name))
    if dtype is None or "kv_cache_dtype" in endpoint.expect:
        return {}
    return {"kv_cache_dtype": dtype}


def _is_same(one: Endpoint, other: Endpoint, facts: Facts, theirs: Facts) -> bool:
    if (one.extra_body != other.extra_body) or (
        one.model and other.model and one.model != other.model
    ):
        return False
    # Arms that are started in turn share a URL and differ by their
    # commands; other arms with one URL are one server.
    return (one.url, one.launch) == (other.url, other.launch) or is_same_configuration(
        facts, theirs
    )


def _apart(endpoints: Sequence[Endpoint], facts: Mapping[str, Facts]) -> Iterator[str]:
    said = {name: {arm: each.get(name) for arm, each in facts.items()} for name in SHARED}
    said |= {
        name: {arm: each["settings"].get(name) for arm, each in facts.items()}
        for name in SHARED_SETTINGS
    }
    for name, by_arm in said.items():
        told = {each.name: by_arm[each.name] for each in endpoints if by_arm[each.name] is not None}
        if len(set(map(str, told.values()))) > 1 and not _is_meant(name, endpoints):
            values = ", ".join(f"{arm} {value}" for arm, value in told.items())
            yield f"arms differ in {name} ({values}): a difference between them may be that"


def _is_meant(name: str, endpoints: Sequence[Endpoint]) -> bool:
    """Return whether the arms file makes arms differ in a fact on purpose, to compare it."""
    flag = f"--{name.replace('_', '-')}"
    is_commanded = name not in {"version", "max_model_len"} and any(
        word.partition("=")[0] == flag
        for each in endpoints
        if each.launch is not None
        for word in each.launch.command
    )
    return is_commanded or all(name in each.expect for each in endpoints)


def _unseen(endpoint: Endpoint, identity: Identity) -> Iterator[str]:
    name = endpoint.name
    where = ", ".join(map(without_credentials, endpoint.metrics_urls))
    if not identity.models:
        yield f"{name}: it lists no models: that it serves '{endpoint.model}' was not checked"
    if not identity.counters.keys() - {"process_start_s"}:
        if endpoint.log is not None:
            yield (
                f"{name}: no metrics at {where}: its log stands in for load and KV usage, "
                "requests of others are not seen"
            )
        else:
            yield (
                f"{name}: no metrics at {where}: KV usage, preemptions and requests of others "
                "are not seen"
            )
    elif "requests_done" not in identity.counters:
        yield f"{name}: no count of finished requests at {where}: requests of others are not seen"
    if (between := identity.gateway) is not None:
        yield (
            f"{name}: {between} is between us and the server: its time is in every latency, and "
            "what it does to calls invalidates blocks"
        )
    if identity.gpus_unseen is not None:
        yield (
            f"{name}: {identity.gpus_unseen}: what its GPUs draw, and whether they are slowed, "
            "is not seen"
        )
