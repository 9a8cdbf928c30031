"""A trained half of a model, ready to use: the `training` folder of a run directory.

    training/
      model.json          what it is: run, role, agreement, settings, calibration, digests
      model.safetensors   the weights
      preprocessing/      how a row of a table becomes what the model takes

The digest of a bundle covers all of these. At the end of training the parties tell each other
theirs, and keep them: whenever the halves are to be used together, `compare_bundles` finds out
whether they belong together. The folder's other files (figures, report) are for people.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, overload

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save_file

from florist.common.core.errors import ConfigurationError
from florist.common.core.release import RELEASE
from florist.common.core.roles import RoleName
from florist.common.data.preprocessing import Preprocessing
from florist.common.session.exchange import exchange
from florist.common.settings.agreement import Agreement
from florist.common.settings.section import Section
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import Calibration, Mixture, When
from florist.common.training.models import ActiveModel, BottomModel, make_half_model
from florist.common.training.predictions import predictions
from florist.common.training.torch_batch import FeatureRows
from florist.common.transport.messages import BundleOffer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from florist.common.data.features import Features
    from florist.common.session.run_directory import RunDirectory
    from florist.common.transport.channel import Link

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 1
#: The channel on which the parties tell each other what they hold.
CHANNEL = "bundle"

_FACTS = "model.json"
_WEIGHTS = "model.safetensors"
_PREPROCESSING = "preprocessing"
_FILES = (_WEIGHTS, f"{_PREPROCESSING}/preprocessing.json")  # which has the vocabularies' digest

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contents:
    """What a bundle is made from."""

    role: RoleName
    #: Names the training run, for both halves alike.
    run: bytes
    agreement: Agreement
    union_sha256: str
    model: Model
    weights: Mapping[str, Tensor]
    preprocessing: Preprocessing
    #: Of the active party; None and none at the passive one.
    calibration: Calibration | None = None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bundle:
    """A half as it was saved, checked, on a device; of whichever party."""

    role: RoleName
    #: 32 bytes each. `run` is the same for both halves; the digests are of this and of the other.
    run: bytes
    digest: bytes
    peer_digest: bytes
    #: By which it was trained, whatever the configuration says today.
    agreement: Agreement
    union_sha256: str
    preprocessing: Preprocessing
    device: torch.device

    def __repr__(self) -> str:
        return f"{type(self).__name__}(run {self.run.hex()[:12]}, {self.preprocessing!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassiveBundle(Bundle):
    """The bottom model `f`."""

    model: BottomModel

    @torch.no_grad()
    def embed(self, features: Features) -> Tensor:
        """`f(X)`, (rows, cut_width), without noise."""
        rows = FeatureRows.of(features, self.device)
        embeddings: Tensor = self.model(rows.numeric, rows.categories)
        return embeddings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveBundle(Bundle):
    """The top model `h`, with the tower and prior of own features where it has some."""

    model: ActiveModel
    calibration: Calibration
    #: What the label column calls the classes.
    class_names: tuple[str, ...]

    @property
    def has_features(self) -> bool:
        """Whether predictions need features of the active party's own."""
        return self.model.tower is not None

    @torch.no_grad()
    def predict(self, embeddings: Tensor, own: Features | None = None) -> Tensor:
        """Calibrated: P(y=1), (rows,), with two classes, else (rows, classes).

        Row `i` of `own`, which is given just where `has_features`, belongs to embedding `i`.
        """
        if (own is not None) != self.has_features:
            raise ValueError("own features are to be given just where the model has a tower")
        columns = () if own is None else FeatureRows.of(own, self.device)[:]
        return predictions(self.model, self.calibration, embeddings.to(self.device), *columns)


class BundleMismatch(ConfigurationError):  # noqa: N818 - as the others, it reads as what happened
    """The parties hold halves of different training runs; both see it."""

    advice = "Restore the `training` folder that goes with the peer's, or train together again."

    @property
    def for_peer(self) -> str:
        return self.reason


# --- saving ---


def save_bundle(folder: Path, contents: Contents, link: Link) -> None:
    """Write this party's half, and tell the peer its digest; the peer does the same.

    Raises:
        BundleMismatch: the peer's is of another run.
    """
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in contents.weights.items()
    }
    save_file(weights, folder / _WEIGHTS)
    contents.preprocessing.save(folder / _PREPROCESSING)
    calibration = None
    if contents.calibration is not None:
        mixture = contents.calibration.mixture
        assert isinstance(mixture, Mixture)  # a prior, where there is one, is among the weights
        calibration = _CalibrationFacts(when=contents.calibration.when, a=mixture.a, b=mixture.b)
    facts = _Facts(
        format=FORMAT,
        release=RELEASE,
        role=contents.role,
        run=contents.run.hex(),
        agreement=contents.agreement,
        union_sha256=contents.union_sha256,
        model=contents.model,
        numeric=len(contents.preprocessing.numeric_columns),
        cardinalities=contents.preprocessing.cardinalities,
        calibration=calibration,
        class_names=contents.class_names,
        files={name: _sha256((folder / name).read_bytes()) for name in _FILES},
    ).model_dump(mode="json")
    digest = _digest(facts)
    peer = _exchange(link, BundleOffer(contents.run, digest))
    facts |= {"digest": digest.hex(), "peer_digest": peer.digest.hex()}
    text = json.dumps(facts, indent=2, sort_keys=True, allow_nan=False)
    (folder / _FACTS).write_text(text + "\n", encoding="utf-8")


# --- loading ---


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
    """This party's half of the model, all of it checked, on `device`.

    Raises:
        ConfigurationError: there is none, it is the other role's, damaged, or of a release that
            this one cannot read.
    """
    folder = runs.training
    facts, digest, peer_digest = _read_facts(folder, role)
    parts: dict[str, Any] = {
        "role": role,
        "run": bytes.fromhex(facts.run),
        "digest": digest,
        "peer_digest": peer_digest,
        "agreement": facts.agreement,
        "union_sha256": facts.union_sha256,
        "preprocessing": Preprocessing.load(folder / _PREPROCESSING),
        "device": device,
    }
    try:
        weights = parse_tensors((folder / _WEIGHTS).read_bytes())
        model = make_half_model(
            facts.role,
            facts.agreement.training,
            facts.model,
            numeric=facts.numeric,
            cardinalities=facts.cardinalities,
            device=device,
        )
        model.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError):  # the last is torch's, over many lines
        raise _damaged(folder / _WEIGHTS) from None
    model.eval().requires_grad_(requires_grad=False)
    if isinstance(model, BottomModel):
        return PassiveBundle(**parts, model=model)
    if facts.calibration is None:
        raise _damaged(folder / _FACTS)
    return ActiveBundle(
        **parts,
        model=model,
        calibration=Calibration(
            facts.calibration.when, Mixture(facts.calibration.a, facts.calibration.b)
        ),
        class_names=facts.class_names,
    )


def _read_facts(folder: Path, role: RoleName) -> tuple[_Facts, bytes, bytes]:
    """What `model.json` says, its digest and the peer's, after all digests were checked."""
    path = folder / _FACTS
    try:
        values = json.loads(path.read_bytes())
        written = values["format"]
        digest, peer_digest = (
            bytes.fromhex(values.pop(name)) for name in ("digest", "peer_digest")
        )
    except FileNotFoundError:
        raise ConfigurationError(
            f"{folder.parent} holds no trained model; run `florist-party --stage train` first"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path) from None
    if written != FORMAT:
        raise ConfigurationError(
            f"{path} is of format {written}, and this release reads {FORMAT}; use the release that "
            "wrote it, or train again"
        )
    try:
        facts = _Facts.of(values)
    except ValidationError:
        raise _damaged(path) from None
    if _digest(values) != digest:
        raise _damaged(path)
    for name in _FILES:
        _check_file(folder / name, facts.files.get(name))
    if facts.role != role:
        raise ConfigurationError(
            f"{folder.parent} holds the {facts.role} party's half; this is the {role} party: "
            "mend --role or run_directory"
        )
    return facts, digest, peer_digest


def _check_file(path: Path, digest: str | None) -> None:
    try:
        content = path.read_bytes()
    except OSError:
        raise _damaged(path) from None
    if _sha256(content) != digest:
        raise _damaged(path)


def _damaged(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: is damaged, or not what a training run wrote; restore it or train again"
    )


# --- do two halves belong together? ---


def compare_bundles(link: Link, bundle: Bundle) -> None:
    """Tell the peer which half this is, and hear which one it has. To be called by both.

    Raises:
        BundleMismatch: they are not of one run; the peer raises it too.
    """
    _exchange(link, BundleOffer(bundle.run, bundle.digest, bundle.peer_digest))


def _exchange(link: Link, ours: BundleOffer) -> BundleOffer:
    def check(theirs: BundleOffer) -> None:
        if not _belong_together(ours, theirs):
            raise BundleMismatch(
                "the two parties hold halves of different training runs: here run "
                f"{ours.run.hex()[:12]}, half {ours.digest.hex()[:12]}; at the peer run "
                f"{theirs.run.hex()[:12]}, half {theirs.digest.hex()[:12]}"
            )

    return exchange(link.channel(CHANNEL), ours, check)


def _belong_together(ours: BundleOffer, theirs: BundleOffer) -> bool:
    """One run, and each is the half that the other remembers; nobody remembers while training."""
    return (
        ours.run == theirs.run
        and ours.peer_digest in (b"", theirs.digest)
        and theirs.peer_digest in (b"", ours.digest)
    )


# --- the small file ---


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _CalibrationFacts(Section):
    when: When
    a: float
    b: tuple[float, ...]


class _Facts(Section):
    """All that `model.json` says, but the two digests. What it does not know, it refuses."""

    kind: Literal["florist bundle"] = "florist bundle"
    format: int
    release: str
    role: RoleName
    run: Sha256
    agreement: Agreement
    union_sha256: str
    model: Model
    numeric: int = Field(ge=0)
    cardinalities: tuple[int, ...]
    calibration: _CalibrationFacts | None
    class_names: tuple[str, ...]
    files: dict[str, Sha256]

    @classmethod
    def of(cls, values: object) -> Self:
        # By way of JSON, in which a tuple may be a list.
        return cls.model_validate_json(json.dumps(values))


def _digest(facts: object) -> bytes:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(b"florist/bundle/1" + text.encode()).digest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
