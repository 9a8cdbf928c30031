"""Explanations of differences from the paper's numbers: a few sentences per table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.experiments.paper.numbers import SETUPS
from florist.experiments.paper.recipes import Lacking, RecipeKind

if TYPE_CHECKING:
    from florist.experiments.paper.numbers import DatasetName
    from florist.experiments.paper.recipes import Recipe, Scale


@dataclass(frozen=True, slots=True)
class DataFacts:
    """The rows used for one of the paper's data sets."""

    dataset: DatasetName
    #: A file name or a description.
    source: str
    #: Numbers of training and test rows.
    rows: int
    test_rows: int
    #: Fraction of positive labels in all rows.
    positive_rate: float
    #: Whether they are (a sample of) the paper's data; otherwise they are generated.
    real: bool


def differences(facts: DataFacts, scale: Scale) -> str:
    """Return the differences from the paper's set-up in one sentence; empty if there are none."""
    paper = SETUPS[facts.dataset]
    name = facts.dataset.capitalize()
    told = []
    papers_rows = round(paper.rows * (1 - paper.test_fraction))
    if not facts.real:
        told.append(f"generated clicks instead of {name}")
    if facts.rows < 0.9 * papers_rows:
        told.append(f"{facts.rows:,} training rows instead of about {papers_rows:,}")
    if scale.batch_size != paper.batch_size:
        told.append(f"batches of {scale.batch_size:,} instead of {paper.batch_size:,}")
    if scale.learning_rate != paper.learning_rate:
        told.append(
            f"a learning rate of {scale.learning_rate:g} instead of {paper.learning_rate:g}"
        )
    if scale.epochs != paper.epochs:
        told.append(f"{scale.epochs} epochs instead of {paper.epochs}")
    if scale.min_count > 1:
        told.append(f"categories in fewer than {scale.min_count} rows taken as one")
    if scale.scaling != "linear":
        told.append("numbers on a logarithmic scale")
    return f"Differences from the paper: {', '.join(told)}." if told else ""


def mechanism(recipe: Recipe, facts: DataFacts, scale: Scale) -> str:
    """Return how these differences affect the numbers of a recipe, as far as that is known.

    Statements about samples were measured on public samples of Criteo and Avazu at small scale.
    """
    steps = scale.epochs * -(-facts.rows // scale.batch_size)
    match recipe.kind:
        case RecipeKind.attack_table if recipe.lacking is Lacking.labels:
            return (
                "The attack classifies rows as synthetic if their gradients are far from the mean"
                " of the batch. With label-majority the opposite holds: the rare gradients belong"
                " to a label that no synthetic row has, so real rows are farther from the mean "
                "and the AUC is below 0.5, whereas the paper's is above. Both are equally "
                "revealing, so compare the folded values. The reason for the opposite sign is "
                "unknown: most strategies would agree if the paper's scores were negated, but not"
                " label-random-pos on Criteo."
            )
        case RecipeKind.attack_table:
            return (
                "The value is the mean over all batches, including the first. On samples, "
                "fea-random is detected only as the model learns: its AUC falls from about 0.4 to"
                " 0.13 (0.87 folded), so the mean over a short training is closer to 0.5. "
                "fea-gaussian reaches at least 0.8, folded, on the sample of Criteo at every "
                "ratio except one half, where two clusters of equal size are equally far from "
                "their common mean. On the sample of Avazu its AUC crosses 0.5 during training, "
                "and batches cancel out. How the paper obtained its values at one half is "
                "unknown."
            )
        case RecipeKind.change_table:
            ratio = 0.75
            rows = round(facts.rows * (1 - ratio) ** 2)
            own_steps = scale.epochs * -(-rows // scale.batch_size)
            return (
                "baseline-partial has only the rows with real labels and real features, and the "
                f"same number of epochs: {own_steps:,} steps at {ratio}, compared with {steps:,} "
                "of FLORIST. This explains gains of FLORIST at high ratios: on samples, with its "
                "best number of epochs, baseline-partial is at least as good at 0.5, with one "
                "exception in four, and better at 0.75, as in the paper. Percentages are relative"
                " to the AUC of baseline-partial; the paper does not define them."
            )
        case RecipeKind.samples_table:
            return (
                "An averaged label is close to the prediction, so its gradient is small and close"
                " to the mean of the batch. Here the AUC falls below 0.5, whereas the paper's "
                "rises above it. Folded, both rise."
            )
        case RecipeKind.utility:
            return (
                "Fewer rows mean a lower AUC everywhere, a steeper decline where few rows have "
                "real data, and overfitting, which raises the ACE, even of the baselines. "
                "baseline-partial takes fewer steps at higher ratios, because its number of "
                "epochs is the same; at high ratios it has not converged. Calibration at test "
                "time (-te) divides by the fraction of real data: at 0.95 it multiplies errors by"
                " 20."
            )
        case RecipeKind.convergence:
            return (
                f"There are {steps:,} steps, about 15,000 in the paper, and the test rows are "
                "evaluated only after each epoch."
            )
