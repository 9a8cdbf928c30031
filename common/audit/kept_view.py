"""The file that keeps what the peer saw of the followed UIDs, so that it can be audited again.

The content is no secret from the peer, but it is derived from personal data, so only the file's
owner can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from florist.common.audit.recorder import Sighting
from florist.common.core.errors import ConfigurationError
from florist.common.session.retention import if_damaged
from florist.common.storage.manifest import damages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.audit.audit_folder import AuditFolder

#: Increased when the file format changes such that an older reader would misread it.
FORMAT = "2"
#: Format 1 had neither columns of logits nor sizes of batches.
_READABLE = ("1", FORMAT)


def save_view(folder: AuditFolder, sightings: Sequence[Sighting], union_sha256: str) -> None:
    """Write all sightings, replacing the file atomically.

    Raises:
        ConfigurationError: it cannot be written.
    """
    lengths = [len(seen.ranks) for seen in sightings]
    content = save(
        {
            "steps": np.array([seen.step for seen in sightings]),
            "epochs": np.array([seen.epoch for seen in sightings]),
            "lengths": np.array(lengths),
            "logit_columns": np.array([seen.logit_columns for seen in sightings]),
            "batch_sizes": np.array([seen.batch_size for seen in sightings]),
            "ranks": np.concatenate([seen.ranks for seen in sightings]),
            "embeddings": np.concatenate([seen.embeddings for seen in sightings]),
            "gradients": np.concatenate([seen.gradients for seen in sightings]),
        },
        metadata={"format": FORMAT, "union_sha256": union_sha256},
    )
    folder.files.write(folder.view.name, content)


def load_view(folder: AuditFolder, union_sha256: str) -> list[Sighting]:
    """Read the sightings that `save_view` wrote.

    Raises:
        ConfigurationError: the file is missing, damaged, belongs to another union, or cannot be
            read.
    """
    path = folder.view
    for damage in damages(folder.path, [path.name]):
        raise damage.error(if_damaged(f"audit/{path.name}"))
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            if facts.get("format") not in _READABLE:
                raise ConfigurationError(f"{path} has a format that this release cannot read")
            if facts.get("union_sha256") != union_sha256:
                raise ConfigurationError(
                    f"{path} belongs to another union than the alignment; train again"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path} does not exist, because what the peer saw was not kept; set audit.keep_view "
            "to true before training"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    ends = np.cumsum(tensors["lengths"])[:-1]
    ranks, embeddings, gradients = (
        np.split(tensors[name], ends) for name in ("ranks", "embeddings", "gradients")
    )
    unknown = np.zeros_like(tensors["steps"])
    return [
        Sighting(
            int(tensors["steps"][number]),
            int(tensors["epochs"][number]),
            ranks[number],
            embeddings[number],
            gradients[number],
            int(tensors.get("logit_columns", unknown)[number]),
            int(tensors.get("batch_sizes", unknown)[number]),
        )
        for number in range(len(ranks))
    ]
