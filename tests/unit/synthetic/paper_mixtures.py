"""The mixtures of the paper's appendices, for two classes: special cases of `mixture`."""

from __future__ import annotations

from florist.common.synthetic.calibration import Mixture


def two_classes(a: float, b: float) -> Mixture:
    """Return the paper's D'(y=1|x) = a·D(y=1|x) + b."""
    # The rest, for y=0, can be a rounding error below 0.
    return Mixture(a, (max(1 - a - b, 0.0), b))


def labels_only(p_a: float) -> Mixture:
    """Appendix E: `label-majority`, and every UID has real features."""
    return two_classes(p_a, 0.0)


def features_only(p_p: float, positive_rate: float) -> Mixture:
    """Appendix F: `fea-sampling`, and every UID has a real label."""
    return two_classes(p_p, (1 - p_p) * positive_rate)


def both_independent(p_a: float, p_p: float, positive_rate: float) -> Mixture:
    """Appendix G: `label-majority` and `fea-sampling`, with independent memberships."""
    return two_classes(p_a * p_p, p_a * (1 - p_p) * positive_rate)
