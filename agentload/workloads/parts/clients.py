"""Describe the clients of an image service, each with its own instructions and sizes."""

from dataclasses import dataclass
from typing import Any, Final

from agentload import documents
from agentload.workloads.parts.draws import Distribution, quantiles, uniform


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One kind of client: share of the sessions, tokens of instructions and tools, its calls."""

    share: float
    system: int
    text: Distribution
    images: Distribution
    image: Distribution
    answer: Distribution
    tools: int = 0
    """Tokens of tools; only agents have some, and continue with a tool's images."""


def _value(said: Any) -> Any:  # noqa: ANN401  # what YAML holds
    """Return a field: a distribution in place of the table that YAML has of it."""
    match said:
        case [[*_], *_]:
            return quantiles(*map(tuple, said))
        case [low, high]:
            return uniform(low, high)
        case _:
            return said


CLIENTS: Final = {
    name: Client(**{field: _value(said) for field, said in client.items()})
    for name, client in documents.own_document("agentload.workloads.parts", "clients.yaml").items()
}
