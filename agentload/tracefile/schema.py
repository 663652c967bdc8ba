"""Write the JSON Schema of the trace format: `python -m agentload.tracefile.schema > docs/trace.schema.json`."""

import sys

import msgspec

from agentload.tracefile import wire


def schema() -> bytes:
    """Return the schema of a line, made from the types that read it."""
    (header, session), parts = msgspec.json.schema_components((wire.Header, wire.Session), ref_template="#/$defs/{name}")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{wire.KIND}/{wire.VERSION}",
        "description": "A line of a trace file: the first is a Header, every other one a Session. Unknown fields are kept.",
        "oneOf": [header, session],
        "$defs": parts,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
