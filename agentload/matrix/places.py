"""Where a matrix keeps what: one folder, a folder in it for each model, the same places each time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """The folder of a matrix."""

    root: Path

    @property
    def policy(self) -> Path:
        """Return the policy that its reports are decided by."""
        return self.root / "policy.yaml"

    def trace(self, workload: str) -> Path:
        """Return the file of a workload's trace."""
        return self.root / "traces" / f"{workload}.jsonl"

    def state(self, model: str) -> Path:
        """Return the file that says what was done of a model: it lies with what was measured, and goes where that goes."""
        return self.root / model / "state.json"

    def database(self, model: str) -> Path:
        """Return a model's database: its only run is the model's, so that nothing has to be remembered to go on with it."""
        return self.root / model / "agentload.duckdb"

    def endpoints(self, model: str, arm: str | None = None) -> Path:
        """Return the arms file of a model, or of one of its arms alone."""
        return self.root / model / ("endpoints.yaml" if arm is None else f"arms/{arm}.yaml")

    def logs(self, model: str, step: str) -> Path:
        """Return the folder of a step's servers' logs."""
        return self.root / model / "logs" / step.replace("/", "-")

    def said(self, model: str, step: str) -> Path:
        """Return the file with what a step printed."""
        return self.root / model / "steps" / f"{step.replace('/', '-')}.txt"

    def report(self, model: str) -> Path:
        """Return the folder of a model's report."""
        return self.root / model / "report"
