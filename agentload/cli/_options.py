"""Options that several verbs have."""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from agentload.store.places import DATABASE

Database: TypeAlias = Annotated[
    Path, typer.Argument(help="DuckDB file that a replay, eval or simulation wrote.")
]
DB: Final = Path(DATABASE)
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder to write the report into; reports/RUN when omitted."),
]
Reference: TypeAlias = Annotated[str | None, "Arm in use today; the run's first when omitted."]
Run: TypeAlias = Annotated[
    str | None, "Name of the run, or how it starts; the one stored last when omitted."
]
Policy: TypeAlias = Annotated[
    Path | None, "YAML: min_change, accuracy_margin, slos, load: {peak_agents: 42}, price, …"
]
Profile: TypeAlias = Annotated[
    str | None, "Profile that describes hardware and model of measured servers."
]
Against: TypeAlias = Annotated[
    str | None, "Compare with production: prometheus=URL or prometheus=FILE, a /metrics text."
]

FailOn: TypeAlias = Annotated[
    str | None,
    (
        "Exit with 3 on these verdicts for the whole server: avoid,test-further,…, bounded "
        "(up to a context), gates or slo."
    ),
]
