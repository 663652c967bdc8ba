"""Jobs as Kubernetes manifests: a CronJob each, the jobs file as a ConfigMap, a claim for the database."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from agentload.watch.job import Job
from agentload.watch.jobs_file import Jobs

HOME: Final = "/var/lib/agentload"
CONFIG: Final = "/etc/agentload"
FILES: Final = frozenset({"digest", "junit", "prometheus"})
SLACK_S: Final = 120  # beyond the job's own limit: comparing and storing


def kubernetes(jobs: Jobs, *, image: str) -> str:
    """Return the manifests as YAML documents; keys come from the secret `agentload`, where there is one."""
    documents = [_config(jobs), _claim(), *(_cron_job(job, image) for job in jobs.jobs)]
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Write text of several lines as such: the jobs file stays readable."""


_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def _config(jobs: Jobs) -> dict[str, Any]:
    content = yaml.safe_load(jobs.path.read_text(encoding="utf-8"))
    content["database"] = f"{HOME}/watch.duckdb"
    content["jobs"] = {name: _at_home(entry) for name, entry in (content.get("jobs") or {}).items()}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agentload-watch"}, "data": {"watch.yaml": text}}


def _at_home(entry: dict[str, Any]) -> dict[str, Any]:
    """Have a job's notices written beside the database: where the jobs file is, nobody may write."""
    said = entry.get("notify")
    if not said:
        return entry
    return {**entry, "notify": {key: str(PurePosixPath(HOME) / value) if key in FILES and value else value for key, value in said.items()}}


def _claim() -> dict[str, Any]:
    # The database is a file under a lock: one pod at a time writes it.
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "agentload-watch"}, "spec": spec}


def _cron_job(job: Job, image: str) -> dict[str, Any]:
    name = f"agentload-{job.name}"[:52].rstrip("-")
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": job.schedule.cron,
            "timeZone": job.schedule.time_zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": round(job.longest_s + job.schedule.stagger_s + SLACK_S),
                    "template": {"spec": _pod(job, image)},
                }
            },
        },
    }


def _pod(job: Job, image: str) -> dict[str, Any]:
    container = {
        "name": "agentload",
        "image": image,
        "command": ["agentload", "watch", "run", job.name, "--file", f"{CONFIG}/watch.yaml", "--scheduled"],
        "workingDir": HOME,
        "envFrom": [{"secretRef": {"name": "agentload", "optional": True}}],
        "resources": {"requests": {"cpu": "2", "memory": "2Gi"}},
        "volumeMounts": [
            {"name": "home", "mountPath": HOME},
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
        ],
    }
    volumes = [
        {"name": "home", "persistentVolumeClaim": {"claimName": "agentload-watch"}},
        {"name": "config", "configMap": {"name": "agentload-watch"}},
    ]
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
