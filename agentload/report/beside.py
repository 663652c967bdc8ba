"""The files beside a report that says use: a canary, the alerts that watch it, and when and how to take it back."""

from __future__ import annotations

import json
import re
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentload.report.parts import Rollout

NAMES: Final = ("canary.yaml", "alerts.yaml", "rollback.md")
MARK: Final = "agentload canary"
"""In the first line of every such file, so that a later report knows its own from yours."""
_RELEASED: Final = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


def beside(rollout: Rollout) -> tuple[tuple[str, str], ...]:
    """Return each file's name and text."""
    environment = Environment(
        loader=PackageLoader("agentload.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # YAML and Markdown: every value passes `quoted`
    )
    # A JSON string is a YAML string.
    environment.filters["quoted"] = lambda words: json.dumps(str(words), ensure_ascii=False)
    released = rollout.version is not None and _RELEASED.fullmatch(rollout.version) is not None
    image = f"vllm/vllm-openai:v{rollout.version}" if released else "IMAGE"
    return tuple((name, environment.get_template(f"{name}.j2").render(rollout=rollout, image=image, mark=MARK)) for name in NAMES)
