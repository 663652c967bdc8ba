"""Jobs as Kubernetes manifests: a CronJob each, the
jobs file as a ConfigMap, a claim for the database.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from agentload import documents
from agentload.endpoints.read import is_arms_file
from agentload.errors import AgentloadError
from agentload.watch.job import Job, beside
from agentload.watch.jobs_file import Jobs

HOME: Final = "/var/lib/agentload"
CONFIG: Final = "/etc/agentload"
FILES: Final = frozenset({"digest", "junit", "prometheus"})
_UNFIT: Final = re.compile(r"[^-._a-zA-Z0-9]+")


def kubernetes(jobs: Jobs, *, image: str) -> str:
    """Return the manifests as YAML documents; keys come
    from the secret `agentload`, where there is one.
    """
    # Our template, a YAML document a manifest: a JSON string is a YAML string.
    made = Environment(loader=PackageLoader("agentload.watch"), undefined=StrictUndefined)  # noqa: S701
    template = made.get_template("kubernetes.yaml.j2").render(
        jobs=jobs.jobs, image=image, home=HOME, config=CONFIG
    )
    return yaml.dump_all(
        [_config(jobs), *yaml.safe_load_all(template)],
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
    )


class _Dumper(yaml.SafeDumper):
    """Write text of several lines as such: the jobs file stays readable."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def brought(jobs: Jobs) -> dict[Path, str]:
    """Return the traces that somebody has to put on the
    claim, and where: they are too large for a ConfigMap.
    """
    paths = [Path(trace) for job in jobs.jobs for trace in job.traces if Path(trace).is_file()]
    return {path: f"{HOME}/{name}" for path, name in _named(paths).items()}


def _config(jobs: Jobs) -> dict[str, Any]:
    content = documents.read(jobs.path)
    entries = {name: _flat(entry) for name, entry in (content.get("jobs") or {}).items()}
    carried = _named([path for entry in entries.values() for path in _small(entry, jobs.path)])
    content["database"] = f"{HOME}/watch.duckdb"
    content["jobs"] = {
        name: _at_home(entry, jobs, jobs.named(str(name)), carried)
        for name, entry in entries.items()
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    data = {
        "watch.yaml": text,
        **{name: path.read_text(encoding="utf-8") for path, name in carried.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "agentload-watch"},
        "data": data,
    }


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the fields of its servers beside the
    others, and its traces as a list: both may be written either way.
    """
    traces = entry["traces"]
    rest = {name: value for name, value in entry.items() if name != "servers"}
    return {
        **rest,
        **entry.get("servers", {}),
        "traces": traces if isinstance(traces, list) else [traces],
    }


def _small(entry: dict[str, Any], at: Path) -> Iterator[Path]:
    """Yield the arms file and the policy that lie here: the ConfigMap carries them.

    Neither holds a secret.
    """
    for text in _files(entry).values():
        path = beside(at, text)
        if path.is_file():
            yield path
        elif not Path(text).is_absolute():  # one that is absolute may be in the image
            raise AgentloadError(
                f"no arms file '{path}'", hint="agentload endpoints init writes one"
            )


def _files(entry: dict[str, Any]) -> dict[str, str]:
    endpoints, policy = entry["endpoints"], entry.get("policy")
    return {
        **({"endpoints": endpoints} if is_arms_file(endpoints) else {}),
        **({"policy": policy} if isinstance(policy, str) else {}),
    }


def _named(paths: Iterable[Path]) -> dict[Path, str]:
    """Give each file a name of its own in one folder, such as a ConfigMap takes."""
    found: dict[Path, str] = {}
    for path in dict.fromkeys(paths):
        name, number = _UNFIT.sub("-", path.name), 1
        while (tried := name if number == 1 else f"{number}-{name}") in {
            *found.values(),
            "watch.yaml",
        }:
            number += 1
        found[path] = tried
    return found


def _at_home(
    entry: dict[str, Any], jobs: Jobs, job: Job, carried: Mapping[Path, str]
) -> dict[str, Any]:
    """Name files as a pod sees them, and have notices and logs written
    beside the database: where the jobs file is, nobody may write.
    """
    known = brought(jobs)
    files = {key: carried.get(beside(jobs.path, text), text) for key, text in _files(entry).items()}
    changed: dict[str, Any] = {
        **files,
        "traces": [
            {**said, "path": known.get(Path(each), each)}
            if isinstance(said, dict)
            else known.get(Path(each), said)
            for each, said in zip(job.traces, entry["traces"], strict=True)
        ],
    }
    if entry.get("launch"):
        changed["logs"] = str(PurePosixPath(HOME) / entry.get("logs", "logs"))
    if said := entry.get("notify"):
        changed["notify"] = {
            key: str(PurePosixPath(HOME) / value) if key in FILES and value else value
            for key, value in said.items()
        }
    return {**entry, **changed}
