"""Writes a party's trained half at the end of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors.torch import save_file

from florist.common.bundle.comparing import exchange_offers
from florist.common.bundle.manifest import (
    FORMAT,
    PREPROCESSING,
    WEIGHTS,
    BundleManifest,
    CalibrationEntry,
    file_digests,
)
from florist.common.core.release import RELEASE
from florist.common.synthetic.calibration import Mixture
from florist.common.transport.messages import BundleOffer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from florist.common.core.roles import RoleName
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.settings.agreement import Agreement
    from florist.common.settings.training import Model
    from florist.common.synthetic.calibration import Calibration
    from florist.common.transport.channel import Link


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BundleContents:
    """What a bundle is made from."""

    role: RoleName
    #: ID of the training run, 32 bytes; the same for both halves.
    run: bytes
    agreement: Agreement
    union_sha256: str
    model: Model
    weights: Mapping[str, Tensor]
    preprocessing: Preprocessing
    #: The active party's only.
    calibration: Calibration | None = None
    class_names: tuple[str, ...] = ()


def save_bundle(folder: Path, contents: BundleContents, link: Link) -> None:
    """Write this party's half and exchange digests with the peer, which does the same.

    Raises:
        BundleMismatch: the peer's half is of another run.
    """
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in contents.weights.items()
    }
    save_file(weights, folder / WEIGHTS)
    contents.preprocessing.save(folder / PREPROCESSING)
    manifest = BundleManifest(
        format=FORMAT,
        release=RELEASE,
        role=contents.role,
        run=contents.run.hex(),
        agreement=contents.agreement,
        union_sha256=contents.union_sha256,
        model=contents.model,
        numeric=len(contents.preprocessing.numeric_columns),
        cardinalities=contents.preprocessing.cardinalities,
        calibration=_entry(contents.calibration),
        class_names=contents.class_names,
        files=file_digests(folder),
    )
    peer = exchange_offers(link, BundleOffer(contents.run, manifest.digest()))
    manifest.write(folder, peer.digest)


def _entry(calibration: Calibration | None) -> CalibrationEntry | None:
    if calibration is None:
        return None
    mixture = calibration.mixture
    assert isinstance(mixture, Mixture)  # a prior, if any, is part of the weights
    return CalibrationEntry(when=calibration.when, a=mixture.a, b=mixture.b)
