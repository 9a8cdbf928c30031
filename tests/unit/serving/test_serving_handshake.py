"""The serving handshake: either party finds every difference between the halves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from florist.common.bundle.comparing import BundleMismatch
from florist.common.core.errors import AgreementMismatch, ConfigurationError, ProtocolViolation
from florist.common.serving.serving_handshake import PROTOCOL, check_offers, model_name
from florist.common.settings.agreement import Agreement, ServingAgreement
from florist.common.transport.messages import BundleOffer, ServingOffer

AGREEMENT = Agreement().canonical()
OTHER_AGREEMENT = Agreement(serving=ServingAgreement(hiding_size=5)).canonical()
ACTIVE = ServingOffer(PROTOCOL, "1.0", AGREEMENT, BundleOffer(b"run", b"one", b"two"), b"union")
PASSIVE = ServingOffer(PROTOCOL, "1.1", AGREEMENT, BundleOffer(b"run", b"two", b"one"), b"union")


def test_halves_of_one_run_belong_together() -> None:
    check_offers(ACTIVE, PASSIVE)
    check_offers(PASSIVE, ACTIVE)
    check_offers(replace(ACTIVE, union_sha256=b""), PASSIVE)


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"protocol": PROTOCOL + 1}, ConfigurationError, "same release on both sides"),
        ({"agreement": OTHER_AGREEMENT}, AgreementMismatch, r"agreement\.serving\.hiding_size"),
        ({"bundle": BundleOffer(b"other", b"two", b"one")}, BundleMismatch, "different training"),
        ({"bundle": BundleOffer(b"run", b"new", b"one")}, BundleMismatch, "different training"),
        ({"bundle": BundleOffer(b"run", b"two", b"old")}, BundleMismatch, "different training"),
        ({"bundle": BundleOffer(b"run", b"two", b"")}, BundleMismatch, "different training"),
        ({"union_sha256": b"other"}, ConfigurationError, "different alignments"),
        ({"agreement": "nonsense"}, ProtocolViolation, "not valid JSON"),
    ],
)
def test_every_difference_is_found_by_both_parties(
    change: dict[str, object], error: type[Exception], problem: str
) -> None:
    theirs = replace(PASSIVE, **change)  # type: ignore[arg-type]
    with pytest.raises(error, match=problem):
        check_offers(ACTIVE, theirs)
    if error is not ProtocolViolation:
        with pytest.raises(error, match=problem):
            check_offers(theirs, ACTIVE)


def test_the_model_name_depends_on_the_model_and_the_agreement() -> None:
    others = [
        replace(ACTIVE, agreement=OTHER_AGREEMENT),
        replace(ACTIVE, bundle=replace(ACTIVE.bundle, run=b"other")),
        replace(ACTIVE, bundle=replace(ACTIVE.bundle, digest=b"other")),
    ]
    assert len({model_name(offer) for offer in (ACTIVE, *others)}) == 4
    assert model_name(ACTIVE) == model_name(replace(ACTIVE, release="2.0"))
