"""Fill the templates of reports, and read the style sheets and the script next to them."""

from importlib import resources
from typing import Any, Final

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined

OURS: Final = PackageLoader("agentload.report")


def environment(loader: BaseLoader = OURS, **settings: Any) -> Environment:
    """Return what fills templates, those of reports unless a *loader* finds others.

    A name that no value has is an error, and a line that holds a statement alone leaves no line.
    """
    return Environment(  # noqa: S701  # each format escapes in its own way
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings
    )


def text(name: str) -> str:
    """Read a file that is next to the templates."""
    return (resources.files("agentload.report") / "templates" / name).read_text(encoding="utf-8")
