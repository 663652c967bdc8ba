"""Keep what a docstring indents as it stands, so that commands and files can be copied out of a help text."""

import re
from typing import Final

WIDTH: Final = 76  # what 80 columns leave
_INDENT: Final = "    "
_DEEPER: Final = "  "
_VERBATIM: Final = "\b"  # paragraphs that do not begin with it are filled
_SEAM: Final = re.compile(r'\s+(?=(?:--? ?\w|\|)(?:[^"]*"[^"]*")*[^"]*$)')  # before an option or a pipe, outside quotes


def help_text(docstring: str) -> str:
    """Mark indented paragraphs as verbatim, with long commands continued on further lines as a shell reads them."""
    return "\n\n".join(_paragraph(each) for each in docstring.strip().split("\n\n"))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if not all(line.startswith(_INDENT) for line in lines):
        return text
    return "\n".join([_VERBATIM, *(_folded(line) for line in lines)])


def _folded(line: str) -> str:
    if len(line) <= WIDTH or not line.startswith(f"{_INDENT}agentload "):
        return line
    first, *parts = _SEAM.split(line)
    folded = [first]
    for part in parts:
        if len(f"{folded[-1]} {part} \\") <= WIDTH:
            folded[-1] += f" {part}"
        else:
            folded.append(_INDENT + _DEEPER + part)
    return " \\\n".join(folded)
