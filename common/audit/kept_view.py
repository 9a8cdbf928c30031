"""What the peer saw of the UIDs that an audit follows, on file: for those who audit again later.

Not secret from the peer, but made from people's data: the file is readable by its owner only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from florist.common.audit.recorder import Sighting
from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = "1"


def save_view(path: Path, sightings: Sequence[Sighting], union_sha256: str) -> None:
    """Write all rows, in the place of those before."""
    lengths = [len(seen.ranks) for seen in sightings]
    content = save(
        {
            "steps": np.array([seen.step for seen in sightings]),
            "epochs": np.array([seen.epoch for seen in sightings]),
            "lengths": np.array(lengths),
            "ranks": np.concatenate([seen.ranks for seen in sightings]),
            "embeddings": np.concatenate([seen.embeddings for seen in sightings]),
            "gradients": np.concatenate([seen.gradients for seen in sightings]),
        },
        metadata={"format": FORMAT, "union_sha256": union_sha256},
    )
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)


def load_view(path: Path, union_sha256: str) -> list[Sighting]:
    """Read what was kept.

    Raises:
        ConfigurationError: nothing was kept, it is of another union, or cannot be read.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            if facts.get("format") != FORMAT:
                raise ConfigurationError(f"{path} is not of a format that this release reads")
            if facts.get("union_sha256") != union_sha256:
                raise ConfigurationError(
                    f"{path} is of another union than the alignment beside it; train again"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path} is not there: what the peer saw was not kept; set audit.keep_view to true "
            "before training"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    ends = np.cumsum(tensors["lengths"])[:-1]
    rows = (np.split(tensors[name], ends) for name in ("ranks", "embeddings", "gradients"))
    groups = zip(tensors["steps"], tensors["epochs"], *rows, strict=True)
    return [Sighting(int(step), int(epoch), *rest) for step, epoch, *rest in groups]
