"""The arms of a comparison as containers: a compose file or
Kubernetes manifests, for people who launch by other means.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from agentload.endpoints.arguments import served
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.launch import VISIBLE
from agentload.errors import LaunchError
from agentload.kvmath.pool import TRIED

IMAGE: Final = "vllm/vllm-openai:v{version}"
CACHE: Final = "/cache"
"""Where the container has the hub's files."""
WEIGHTS: Final = "/weights"
"""Where it has a folder of this machine that is served."""
HUB: Final = "agentload-hub"
_LABEL: Final = re.compile(r"(NVIDIA|Tesla|Quadro|GRID)-[A-Za-z0-9._-]+")
"""How GPU feature discovery labels nodes, as in NVIDIA-H100-80GB-HBM3; people say H100."""
_IMAGES: Final = (
    f"# Images are of vLLM {TRIED}, which this was tried with, where an arm expects no other "
    "release.\n"
)
COMPOSE: Final = f"""\
{_IMAGES}# On one GPU: docker compose up ARM, one at a time. Arms with GPUs of their own (gpu_ids, CUDA_VISIBLE_DEVICES) run side by side.
"""
KUBERNETES: Final = f"""\
{_IMAGES}# Models that ask for a token: kubectl create secret generic {HUB} --from-literal=HF_TOKEN=...
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One arm's server, as something that starts containers must know it."""

    image: str
    program: tuple[str, ...]
    """In place of the image's own, which is `vllm serve`; () leaves that."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    port: int
    gpus: int
    gpu_ids: tuple[str, ...]
    """() where the arm names none, or a part of one."""
    folder: str | None
    """Of this machine, to be served."""


def container(arm: Endpoint, launch: Launch) -> Container:
    """Turn the launch of an arm into what a container runs."""
    own = (
        () if any("/" in each for each in arm.own_gpus) else tuple(sorted(arm.own_gpus))
    )  # Docker numbers parts in its own way
    words = served(launch.command)
    folder = _folder(words[0]) if words else None
    program, arguments = (
        (_program(launch.command), ()) if words is None else ((), _arguments(words, folder))
    )
    return Container(
        image=_image(arm),
        program=program,
        arguments=arguments,
        # It sees the GPUs that it was given, and counts them from 0.
        environment={"HF_HOME": CACHE}
        | {name: value for name, value in launch.env.items() if name not in VISIBLE},
        port=urlsplit(arm.url).port or 8000,
        gpus=arm.gpus or len(own) or (arm.tensor_parallel or 1) * (arm.data_parallel or 1),
        gpu_ids=own,
        folder=folder,
    )


def _program(words: Sequence[str]) -> tuple[str, ...]:
    # The image's Python has one name.
    return (
        "python3" if re.fullmatch(r"python[\d.]*", Path(words[0]).name) else words[0],
        *words[1:],
    )


def _arguments(words: tuple[str, ...], folder: str | None) -> tuple[str, ...]:
    model, *rest = words
    if "--host" in rest:  # the container's own address is another
        at = rest.index("--host")
        rest = rest[:at] + rest[at + 2 :]
    if folder is None:
        return (model, *rest)
    return (
        WEIGHTS,
        *(() if "--served-model-name" in rest else ("--served-model-name", model)),
        *rest,
    )


def _folder(model: str) -> str | None:
    """Return the folder that is served, where it is one: it is spelled as a path, or is there."""
    path = Path(model).expanduser()
    return str(path.absolute()) if model.startswith((".", "/", "~")) or path.is_dir() else None


def _image(arm: Endpoint) -> str:
    """Name the image of the release that the arm expects;
    where it expects none, of the one that was tried.
    """
    found = re.match(
        r"\d+\.\d+(\.\d+)?(?=$|\+)", str(arm.expect.get("version", "")).removeprefix("v")
    )
    if found is None or f"{TRIED}.".startswith(f"{found[0]}."):
        return IMAGE.format(version=TRIED)
    return IMAGE.format(version=found[0] if found[1] else f"{found[0]}.0")


def compose(arms: Sequence[Endpoint]) -> str:
    """Return a compose file with a service an arm."""
    text = yaml.safe_dump(next(_rendered("compose", arms)), sort_keys=False, width=1000)
    return COMPOSE + text.replace("$", "$$")  # compose would put a variable there


def kubernetes(arms: Sequence[Endpoint]) -> str:
    """Return a claim for the model's files, a deployment and a service an arm."""
    return KUBERNETES + yaml.safe_dump_all(
        _rendered("kubernetes", arms), sort_keys=False, width=1000
    )


def _rendered(name: str, arms: Sequence[Endpoint]) -> Iterator[object]:
    """Yield the documents of one of our templates, whose values are JSON: that is YAML."""
    found = [(arm, container(arm, arm.launch)) for arm in arms if arm.launch is not None]
    if not found:
        raise LaunchError(
            "no arm of the file has a 'launch'", hint="launch: vllm serve MODEL --port 8000"
        )
    made = Environment(loader=PackageLoader("agentload.endpoints"), undefined=StrictUndefined)  # noqa: S701
    made.filters |= {
        "label": _label,
        "is_product": lambda gpu: _LABEL.fullmatch(gpu or "") is not None,
    }
    yield from yaml.safe_load_all(made.get_template(f"{name}.yaml.j2").render(arms=found))


def _label(name: str) -> str:
    return "agentload-" + re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
