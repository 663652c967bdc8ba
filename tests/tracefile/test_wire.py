import sys
from pathlib import Path

import msgspec

from agentload.tracefile.wire import KIND, VERSION, JsonHeader, JsonSession


def schema() -> bytes:
    """Return the JSON Schema of a line."""
    (header, session), parts = msgspec.json.schema_components(
        (JsonHeader, JsonSession), ref_template="#/$defs/{name}"
    )
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{KIND}/{VERSION}",
        "description": (
            "A line of a trace file: the first is the header, all others are sessions. Unknown "
            "fields are kept."
        ),
        "oneOf": [header, session],
        "$defs": parts,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def test_the_schema_in_the_documentation_is_that_of_the_types() -> None:
    """`python -m tests.tracefile.test_wire > docs/trace.schema.json` mends it."""
    assert (Path(__file__).parents[2] / "docs" / "trace.schema.json").read_bytes() == schema()


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
