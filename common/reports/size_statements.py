"""What reports say about the sizes that both parties learn from a union."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from florist.common.session.union_sizes import UnionSizes


def estimate_text(value: float, deviation: float) -> str:
    """Return a count as text, with its standard deviation if it is not exact."""
    return f"{value:,.0f}" if not deviation else f"{value:,.0f} ± {deviation:.1f}"


def privacy_text(privacy: dict[str, float] | None) -> str:
    """Return the guarantee for the sizes in a few words."""
    if privacy is None:
        return "none (exact, by agreement)"
    return f"ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g}"


def known_sizes(announced_by: dict[str, int], sizes: UnionSizes) -> str:
    """Return a sentence on the sizes that both parties know.

    Args:
        announced_by: the size that each party has announced, by its name.
        sizes: the same, and that of the union.
    """
    each = " and ".join(f"{size:,} of {party}" for party, size in announced_by.items())
    announced = (
        f"Both know the announced sizes of the two sets, {each}, and the size of the union, "
        f"{sizes.union:,}"
    )
    shared = estimate_text(sizes.shared_estimate, sizes.shared_deviation)
    if sizes.is_exact:
        return f"{announced}, and thus that {shared} are in both. Dummies count as people."
    return (
        f"{announced}. All are padded with random numbers of IDs that are nobody's. So both can "
        f"estimate how many people are in both sets, {shared} (standard deviation), and neither "
        "knows the exact number."
    )


def guarantee(privacy: dict[str, float] | None) -> str:
    """Return a sentence on the guarantee for the sizes, or that there is none."""
    if privacy is None:
        return (
            "By agreement the sizes have no guarantee of differential privacy "
            "(agreement.union.privacy: null): the number of shared people is exact, and one person "
            "more or less shows in it."
        )
    return (
        f"The sizes are differentially private with ε = {privacy['epsilon']:g} and "
        f"δ = {privacy['delta']:g}, for each person of either party, in this union. Embeddings and "
        "gradients are not covered."
    )
