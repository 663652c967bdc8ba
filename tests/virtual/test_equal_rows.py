"""Simulated days keep every byte: recordings, kept reports and golden files are made of them."""

from hashlib import blake2b

import pytest

from agentload.layout.plan import Scheme, plan
from agentload.model.plan import ClosedLoop, Load
from agentload.model.trace import Header, Trace
from agentload.run.servers import arms_of
from agentload.store import codec
from agentload.virtual.shell import Shell
from benchmarks.simulate import agents, said

RECORDED = Load()
CLOSED = Load(arrivals=ClosedLoop(sessions=3))


@pytest.mark.parametrize(
    ("profile", "load", "expected"),
    [
        ("gpt-oss-20b-h100", RECORDED, "8862351947d3c683"),
        ("gpt-oss-20b-h100", CLOSED, "5dbf503582354dfd"),
        ("llama-3.1-8b-h100", RECORDED, "b27a42c453df8fe4"),
        ("llama-3.1-8b-h100", CLOSED, "000fa08c8e9314c6"),
    ],
)
def test_equal_seeds_give_the_rows_that_they_always_gave(
    profile: str, load: Load, expected: str
) -> None:
    arms = {arm.name: arm for arm in arms_of(profile)[:2]}
    header = Header(name="day", prefixes={"P": (said("system", 3000, "sys"),)})
    trace = Trace(header=header, sessions=tuple(agents(6, 40)))
    made = plan(trace, list(arms), run="day", load=load, scheme=Scheme(pairs=1))
    found = blake2b(digest_size=8)
    for row in Shell(made, arms, seed=1, sample_s=600.0).play():
        found.update(codec.record(row))
    assert found.hexdigest() == expected
