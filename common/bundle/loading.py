"""Reads a party's trained half from its run directory, and verifies all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors

from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
from florist.common.bundle.manifest import (
    BUNDLE_FILES,
    MANIFEST,
    PREPROCESSING,
    WEIGHTS,
    damaged,
    read_manifest,
)
from florist.common.data.preprocessing import Preprocessing
from florist.common.synthetic.calibration import Calibration, Mixture
from florist.common.training.model_factory import make_half_model
from florist.common.training.models import BottomModel

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.bundle.manifest import BundleManifest
    from florist.common.core.roles import RoleName
    from florist.common.session.run_directory import RunDirectory
    from florist.common.training.models import ActiveModel

_CPU = torch.device("cpu")


@overload
def load_bundle(
    runs: RunDirectory, role: Literal["active"], device: torch.device = ...
) -> ActiveBundle: ...
@overload
def load_bundle(
    runs: RunDirectory, role: Literal["passive"], device: torch.device = ...
) -> PassiveBundle: ...
@overload
def load_bundle(
    runs: RunDirectory, role: RoleName, device: torch.device = ...
) -> ActiveBundle | PassiveBundle: ...
def load_bundle(
    runs: RunDirectory, role: RoleName, device: torch.device = _CPU
) -> ActiveBundle | PassiveBundle:
    """Load this party's half onto `device`.

    Raises:
        ConfigurationError: there is none, it is the other role's, damaged, or has a format that
            this release cannot read.
    """
    folder = runs.training
    runs.require_intact(folder / MANIFEST)  # its digests cover the other files of the bundle
    found = read_manifest(folder, role)
    runs.warn_of_damage(folder, *BUNDLE_FILES)
    manifest = found.manifest
    run = bytes.fromhex(manifest.run)
    preprocessing = Preprocessing.load(folder / PREPROCESSING)
    model = _load_model(manifest, folder / WEIGHTS, device)
    if isinstance(model, BottomModel):
        return PassiveBundle(
            role=role,
            run=run,
            digest=found.digest,
            peer_digest=found.peer_digest,
            agreement=manifest.agreement,
            union_sha256=manifest.union_sha256,
            preprocessing=preprocessing,
            device=device,
            model=model,
        )
    if manifest.calibration is None:
        raise damaged(folder / MANIFEST)
    mixture = Mixture(manifest.calibration.a, manifest.calibration.b)
    return ActiveBundle(
        role=role,
        run=run,
        digest=found.digest,
        peer_digest=found.peer_digest,
        agreement=manifest.agreement,
        union_sha256=manifest.union_sha256,
        preprocessing=preprocessing,
        device=device,
        model=model,
        calibration=Calibration(manifest.calibration.when, mixture),
        class_names=manifest.class_names,
    )


def _load_model(
    manifest: BundleManifest, path: Path, device: torch.device
) -> ActiveModel | BottomModel:
    """Load the weights, frozen, for inference."""
    try:
        weights = parse_tensors(path.read_bytes())
        model = make_half_model(
            manifest.role,
            manifest.agreement.training,
            manifest.model,
            numeric=manifest.numeric,
            cardinalities=manifest.cardinalities,
            device=device,
        )
        model.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError):  # the last is torch's, with a long message
        raise damaged(path) from None
    return model.eval().requires_grad_(requires_grad=False)
