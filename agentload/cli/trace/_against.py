"""Hold a trace against production."""

from agentload.cli._production import production
from agentload.exposition.likeness import Figures, Likeness, Spread, likeness
from agentload.tracefile.overview import SHARES, Overview, Summary

_SHOWN = (0.5, 0.9, 0.99)


def beside(found: Overview, source: str) -> tuple[Likeness, ...]:
    """Compare a trace with the metrics that `prometheus=URL|FILE` names."""
    ours = Figures(prompt=_spread(found.fields["context"]), output=_spread(found.fields["output"]), cached=found.reuse.share)
    return tuple(likeness(ours, production(source)))


def _spread(field: Summary) -> Spread:
    return Spread(mean=field.mean, quantiles={share: field.quantiles[SHARES.index(share)] for share in _SHOWN})
