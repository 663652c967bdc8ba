"""Find the geometry of a served model on this machine, for the gates that hold a measurement against physics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity
from agentload.endpoints.weights import config_file
from agentload.errors import ProfileError
from agentload.kvmath.config import model_shape


def geometry(endpoint: Endpoint, model: str, identity: Identity) -> str | None:
    """Return the shape of the model as JSON, from the first config.json that is found; None where none is here or it is not understood.

    Raises ProfileError when the arms file names a config that cannot be read: that was meant.
    """
    for name in _names(endpoint, model, identity):
        try:
            config = json.loads(config_file(name).read_text(encoding="utf-8"))
            return json.dumps(asdict(model_shape(config, name=model)), sort_keys=True)
        except (ProfileError, ValueError, OSError, AttributeError) as error:
            if name == endpoint.config:
                raise ProfileError(
                    f"{endpoint.name}: config '{name}': {error}", hint="name the config.json that comes with the weights"
                ) from error
    return None


def _names(endpoint: Endpoint, model: str, identity: Identity) -> Iterator[str]:
    if endpoint.config is not None:
        yield endpoint.config
        return
    if endpoint.profile is not None or identity.emulated is not None:
        return  # the profile has it
    if isinstance(weights := identity.settings.get("weights") or identity.log.settings.get("weights"), str):
        yield weights
    words = endpoint.launch.command if endpoint.launch is not None else ()
    if "serve" in words[:-1]:
        yield words[words.index("serve") + 1]
    yield model
