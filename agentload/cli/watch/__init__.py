"""Compare on a schedule: did something get worse since last time?

Jobs live in a file, watch.yaml, with their database next to it:

    database: watch.duckdb
    jobs:
      nightly-rag:
        traces: [rag]
        endpoints: prod=http://127.0.0.1:8000/v1
        schedule: {cron: "0 2 * * *", time_zone: Europe/Berlin}
        budget: {calls: 400, minutes: 30}
        retention: {runs: 30}

The first usable run of a job is the reference; each later
one is compared with it, turn by turn on the same bytes.
"""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from agentload.watch import jobs_file

DEFAULT: Final = Path(jobs_file.DEFAULT)

JobsFile: TypeAlias = Annotated[
    Path, typer.Option("--file", "-f", help="Jobs file; its database is next to it.")
]
Name: TypeAlias = Annotated[str, typer.Argument(help="Name of the job.")]
