"""Compare a text with the one that was looked at and kept; `UPDATE_GOLDENS=1` keeps the new one."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "goldens"


def assert_golden(name: str, text: str) -> None:
    file = FOLDER / name
    if os.environ.get("UPDATE_GOLDENS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), (
        f"{name} differs: look at it, then UPDATE_GOLDENS=1"
    )
