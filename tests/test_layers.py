"""Every layer contract fails when an import is planted against it.

The contracts are those of pyproject.toml; the rooms are empty
ones, so that nothing but the plant can break a contract.
"""

import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
}
LAYERS = [
    [room.strip(" ()") for room in layer.split(":")] for layer in CONTRACTS["layers"]["layers"]
]
ROOMS = list(itertools.chain.from_iterable(LAYERS))
PURE: list[str] = CONTRACTS["pure"]["source_modules"]

Plants = set[tuple[str, str]]  # (package that imports, what it imports)


def plant(house: Path, plants: Plants) -> None:
    (house / "agentload").mkdir()
    (house / "agentload" / "__init__.py").touch()
    for package in {
        "advisor",
        *(f"agentload.{room}" for room in ROOMS),
        *PURE,
        *(importer for importer, _ in plants),
    }:
        folder = house / package.replace(".", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        imports = sorted(imported for importer, imported in plants if importer == package)
        (folder / "planted.py").write_text("".join(f"import {name}\n" for name in imports))
    shutil.copy(ROOT / "pyproject.toml", house)


def objection(house: Path, *contracts: str) -> str | None:
    """Return what the contracts say against the house; None if they hold."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    named = [word for each in contracts for word in ("--contract", each)]
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo", *named]
    done = subprocess.run(
        command, cwd=house, env={"COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    (counts,) = re.findall(r"Contracts: (\d+) kept, (\d+) broken\.", said)
    kept, broken = map(int, counts)
    assert (kept + broken, bool(broken)) == (len(contracts), bool(done.returncode)), said
    return said if broken else None


def reported(said: str | None, plants: Plants) -> Plants:
    """Keep the plants that the objection names."""
    assert said is not None
    return {
        (importer, imported)
        for importer, imported in plants
        if re.search(rf"{importer}\.planted -> {imported}\b", said)
    }


def test_an_empty_house_keeps_every_contract(tmp_path: Path) -> None:
    plant(tmp_path, set())
    assert objection(tmp_path, *CONTRACTS) is None


def test_the_order_of_the_layers_is_the_agreed_one() -> None:
    assert " > ".join(" : ".join(layer) for layer in LAYERS) == (
        "cli : api > watch : ui : matrix : decision > report > verdict > run > remote > "
        "live : virtual : serve : ask > "
        "endpoints : telemetry > evidence > store > layout > study > dispatch > emulator > "
        "workloads : importers : exporters : degrade : tasks > prompts > tracefile > "
        "kvmath : exposition > model > "
        "plugins > builtin : compiled : documents : errors : visible"
    )


def test_no_room_imports_one_of_the_layer_above(tmp_path: Path) -> None:
    plants = {
        (f"agentload.{room}", f"agentload.{above[0]}")
        for above, layer in itertools.pairwise(LAYERS)
        for room in layer
    }
    plant(tmp_path, plants)
    assert reported(objection(tmp_path, "layers"), plants) == plants


def test_a_new_room_must_be_given_a_layer(tmp_path: Path) -> None:
    plant(tmp_path, {("agentload.stray", "json")})
    assert "agentload.stray" in (objection(tmp_path, "layers") or "")


def test_siblings_may_import_each_other_one_way(tmp_path: Path) -> None:
    plant(tmp_path, {("agentload.serve", "agentload.live")})
    assert objection(tmp_path, "layers", "acyclic") is None


def test_siblings_may_not_import_each_other_in_a_circle(tmp_path: Path) -> None:
    plant(tmp_path, {("agentload.serve", "agentload.live"), ("agentload.live", "agentload.serve")})
    assert objection(tmp_path, "layers") is None
    assert ".serve -> .live" in (objection(tmp_path, "acyclic") or "")


def test_the_model_imports_nothing_of_the_house(tmp_path: Path) -> None:
    plants = {
        ("agentload.model", imported)
        for imported in ("agentload.builtin", "agentload.errors", "agentload.plugins", "advisor")
    }
    plant(tmp_path, plants)
    assert reported(objection(tmp_path, "model"), plants) == plants


def test_no_pure_room_imports_the_world(tmp_path: Path) -> None:
    world = ("asyncio", "socket", "time", "os", "duckdb", "aiohttp")
    plants = {(room, imported) for room in PURE for imported in world}
    plant(tmp_path, plants)
    assert reported(objection(tmp_path, "pure"), plants) == plants


def test_the_advisor_imports_nothing_of_agentload_and_no_other_dependency(tmp_path: Path) -> None:
    plants = {("advisor", imported) for imported in CONTRACTS["advisor"]["forbidden_modules"]}
    plant(tmp_path, plants | {("advisor", "numpy"), ("advisor", "scipy")})
    assert reported(objection(tmp_path, "advisor"), plants) == plants


def test_only_those_who_gather_evidence_or_show_verdicts_import_the_advisor(tmp_path: Path) -> None:
    allowed = {"cli", "decision", "evidence", "report", "ui", "verdict", "watch"}
    plants = {(f"agentload.{room}", "advisor") for room in ROOMS}
    plant(tmp_path, plants)
    barred = {(f"agentload.{room}", "advisor") for room in ROOMS if room not in allowed}
    assert reported(objection(tmp_path, "advised"), plants) == barred
