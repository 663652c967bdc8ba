"""Whatever stands in a file that people write, they are told
the file and the line: no traceback, no endless reading.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from agentload import documents
from agentload.cli.servers import emulate
from agentload.emulator import profile
from agentload.endpoints.read import read_file
from agentload.errors import AgentloadError
from agentload.matrix.read import read_matrix
from agentload.run.files import read_study
from agentload.verdict.policy import read_policy
from agentload.watch.jobs_file import add, read_jobs, remove

ROOT: Final = Path(__file__).parents[1]

READERS: Final[Mapping[str, Callable[[Path], Any]]] = {
    "arms": read_file,
    "policy": read_policy,
    "profile": lambda path: profile.read(str(path)),
    "faults": lambda path: emulate(profile="llama-3.1-8b-h100/fp8", faults=path),
    "matrix": read_matrix,
    "study": read_study,
    "jobs": read_jobs,
    "a job to be added": lambda path: add(path, "x", {}),
    "a job to be removed": lambda path: remove(path, "x"),
}
HOSTILE: Final[Mapping[str, bytes]] = {
    "nested": b"a: 1\nb: " + b"[" * 200,
    "holding itself": b"arms:\n  a: &x {y: *x}",
    "of many digits": b"a: 1\nb: " + b"9" * 5000,
    "no UTF-8": b"a: 1\nb: \xff",
    "a bomb": b"".join(
        b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10 if n else [b"1"] * 10))
        for n in range(9)
    ),
    "no day": b"a: 1\nb: 2026-02-30",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_every_document_is_refused_with_its_place(
    tmp_path: Path, reader: Callable[[Path], Any], content: bytes
) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(AgentloadError, match=r"x\.yaml:[2-9]: not (YAML|text)"):
        reader(path)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_every_document_is_bounded(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (documents.MOST_BYTES + 1))
    with pytest.raises(AgentloadError, match=r"x\.yaml: larger than 1 MiB"):
        reader(path)


def test_yaml_is_read_in_one_place() -> None:
    found = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "agentload").rglob("*.py")
        if "yaml.safe_load" in file.read_text()
    }
    assert found == set()
