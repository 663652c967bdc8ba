from pathlib import Path

from agentload.tracefile.wire import schema


def test_the_schema_in_the_documentation_is_that_of_the_types() -> None:
    """`python -m agentload.tracefile.wire > docs/trace.schema.json` mends it."""
    assert (Path(__file__).parents[2] / "docs" / "trace.schema.json").read_bytes() == schema()
