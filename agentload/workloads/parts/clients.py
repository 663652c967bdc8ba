"""Describe the clients of an image service, each with its own instructions and sizes."""

import tomllib
from importlib.resources import files
from typing import Any, Final

from agentload.model.record import Record
from agentload.workloads.parts.draws import Distribution, quantiles, uniform


class Client(Record):
    """One kind of client: share of the sessions, tokens of instructions and tools, its calls."""

    share: float
    system: int
    text: Distribution
    images: Distribution
    image: Distribution
    answer: Distribution
    tools: int = 0
    """Tokens of tools; only agents have some, and continue with a tool's images."""


def _value(said: Any) -> Any:  # noqa: ANN401  # what TOML holds
    """Return a field: a distribution in place of the table that the file has of it."""
    match said:
        case [[*_], *_]:
            return quantiles(*map(tuple, said))
        case [low, high]:
            return uniform(low, high)
        case _:
            return said


# In TOML, which any Python reads by itself: equal seeds give equal bytes on all of them.
_FILE: Final = files("agentload.workloads.parts") / "clients.toml"
CLIENTS: Final = {
    name: Client(**{field: _value(said) for field, said in client.items()})
    for name, client in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
