"""Compile the modules that every call and every simulated step pass through, and the
thread that reads sockets: `make speedups` builds them into `build/speedups`.

The sources are those of the folder above, as they are. Each module keeps its
name and lies in the folder `agentload_speedups`, where `agentload.compiled`
finds it; what mypyc makes of all of them is one library beside that folder. The thread
(`reader.c`) is a plain library there too, which `agentload.live.reader` loads; it knows
nothing of Python.
"""

import os
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
HOUSE = HERE.parent
NAME = "agentload_speedups"
READER = "agentload_reader"
ROOMS = {
    "dispatch": (
        "block call dependencies dispatcher framing garbage intake naming outgoing row session sse"
    ),
    "emulator": "engine inflight pool prefixes scheduler steplog stepper steptime tree",
    "live": "channel exchange hub incoming pump stamps",
    "virtual": "content shell",
}
MODULES = [
    f"agentload.{room}.{module}" for room, modules in ROOMS.items() for module in modules.split()
]

os.environ["AGENTLOAD_PURE"] = "1"
os.chdir(HERE)
sys.path.insert(0, str(HOUSE))

from agentload import __version__  # noqa: E402
from agentload.compiled import digest  # noqa: E402


class Build(build_ext):
    """Put modules into a folder of our own, with a note of what they were made of."""

    def get_ext_filename(self, ext_name: str) -> str:
        """Return a module's file name; the thread's is the same for every Python."""
        return f"{READER}.so" if ext_name == READER else str(super().get_ext_filename(ext_name))

    def get_ext_fullpath(self, ext_name: str) -> str:
        """Return where a module is written to."""
        path = Path(super().get_ext_fullpath(ext_name))
        below = path.relative_to(self.build_lib)
        return str(Path(self.build_lib, NAME, below) if ext_name.startswith("agentload.") else path)

    def run(self) -> None:
        """Build, and write the note."""
        super().run()
        folder = Path(self.build_lib, NAME)
        note = (
            f'"""Compiled modules of agentload {__version__}."""\n\nMODULES = '
            f'{MODULES!r}\nDIGEST = "{digest(HOUSE, MODULES)}"\n'
        )
        (folder / "__init__.py").write_text(note, encoding="utf-8")


paths = [os.path.relpath(HOUSE / f"{name.replace('.', '/')}.py") for name in MODULES]
extensions = mypycify(
    ["--config-file=", "--ignore-missing-imports", *paths],
    group_name=NAME,
    target_dir=str(HOUSE / "build" / "speedups-c"),
)
if sys.platform == "linux":
    flags = ["-std=gnu11", "-pthread"]
    extensions.append(
        Extension(READER, ["reader.c"], extra_compile_args=flags, extra_link_args=["-pthread"])
    )
setup(
    version=__version__,
    packages=[],
    py_modules=[],
    ext_modules=extensions,
    cmdclass={"build_ext": Build},
)
