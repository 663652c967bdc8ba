"""Take a job out of the jobs file; its history stays in the database.

For example:

    agentload watch remove nightly-rag
"""

from agentload.cli.watch import _options as opt
from agentload.watch.jobs_file import remove


def run(name: opt.Name, *, file: opt.JobsFile = opt.DEFAULT) -> None:
    remove(file, name)
    print(f"removed {name} from {file}; agentload watch install brings the crontab up to date")
