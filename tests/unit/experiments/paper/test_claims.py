"""The checks of the paper's conclusions: they hold, fail, or are not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from florist.experiments.paper.claims import CLAIMS, check_all
from florist.experiments.paper.recipes import Condition, Lacking
from florist.experiments.paper.results import Measured, NotMeasured, Results
from tests.unit.experiments.paper import planted

if TYPE_CHECKING:
    from florist.experiments.paper.claims import Claim


def claim(part: str) -> Claim:
    (found,) = (claim for claim in CLAIMS if part in claim.text)
    return found


def changed(method: str, **figures: Any) -> Results:  # noqa: ANN401 - any field
    """The planted results with other metrics of one method."""
    return Results(
        (c, replace(planted.measured(c), **figures) if c.method == method else planted.measured(c))
        for c in planted.CONDITIONS
    )


def test_the_papers_numbers_support_its_conclusions() -> None:
    for found, verdicts in check_all(planted.results()):
        for dataset, verdict in verdicts.items():
            assert verdict.holds, (found.text, dataset, verdict.evidence)


@pytest.mark.parametrize(
    ("part", "method", "figures"),
    [
        ("Less real data", "baseline-partial", {"auc": 0.79}),
        ("label-majority has an AUC", "label-majority", {"auc": 0.7}),
        ("label-majority has a larger ACE", "label-majority", {"ace": 0.01}),
        ("cuts the ACE of label-majority", "label-majority-te", {"ace": 0.9}),
        ("similar to that of the baselines", "label-majority-tr", {"ace": 0.05}),
        ("label-minority leaks most", "label-minority", {"attack_auc": 0.55}),
        ("label-random-pred leaks least", "label-random-pred", {"attack_auc": 0.4}),
        ("lower AUC than label-majority", "label-random-pred", {"auc": 0.8}),
        ("but a higher one", "label-random-pred", {"auc": 0.7}),
        ("Averaging more labels", "label-random-pred", {"auc": 0.7}),
        ("its attack AUC rises", "label-random-pred", {"attack_auc": 0.5}),
        ("are detected", "fea-gaussian", {"attack_auc": 0.6}),
        ("Their AUC is comparable", "fea-random", {"auc": 0.7}),
        ("is not detected", "fea-sampling-tr", {"attack_auc": 0.4}),
        ("cuts the ACE of fea-sampling", "fea-sampling", {"ace": 0.005}),
        ("AUC of fea-sampling falls", "fea-sampling", {"auc": 0.8}),
        ("similar AUCs", "florist-vanilla", {"auc": 0.6}),
        ("lower ACE than FLORIST-vanilla", "florist-paper", {"ace": 0.3}),
        ("little below", "florist-paper", {"auc": 0.7}),
        ("and falls further below", "florist-paper", {"auc": 0.8}),
        ("fall to stable points", "florist-paper", {"epochs": planted.epochs(0.5, 0.6)}),
        ("the slower it converges", "florist-paper", {"epochs": planted.epochs(0.6, 0.5)}),
    ],
)
def test_each_conclusion_can_fail(part: str, method: str, figures: dict[str, Any]) -> None:
    found = claim(part)
    dataset = found.datasets[0]
    assert found.check(changed(method, **figures), dataset).holds is False


def test_the_test_above_covers_each_conclusion() -> None:
    (mark,) = test_each_conclusion_can_fail.pytestmark
    assert len({claim(case[0]).text for case in mark.args[1]}) == len(CLAIMS)


def test_an_attack_auc_is_folded_at_one_half() -> None:
    found = claim("label-minority leaks most")
    assert found.check(changed("label-minority", attack_auc=0.3), "criteo").holds


@pytest.mark.parametrize("figure", [None, float("nan")])
def test_a_missing_measurement_gives_no_verdict(figure: float | None) -> None:
    found = claim("are detected")
    for results in (
        planted.results(without="fea-random"),
        changed("fea-random", attack_auc=figure),
        Results([]),
    ):
        verdict = found.check(results, "criteo")
        assert verdict.holds is None
        assert verdict.evidence == "not measured"


def test_results_are_means_over_seeds() -> None:
    condition = Condition("criteo", Lacking.labels, "label-majority", 0.5)
    results = Results([(condition, Measured(0.7, 0.1)), (condition, Measured(0.8, 0.1))])
    figure = results.figure(condition, "auc")
    assert figure.value == pytest.approx(0.75)
    assert figure.spread == pytest.approx(0.0707, abs=1e-4)
    assert results.on("criteo", Lacking.labels).ratios("label-majority") == [0.5]
    with pytest.raises(NotMeasured):
        results.figure(replace(condition, ratio=0.25), "auc")
    assert results.find(condition, "attack_auc") is None


def test_changes_are_in_percent_of_the_baseline() -> None:
    one, other = (
        Condition("avazu", Lacking.both, m, 0.5) for m in ("florist-paper", "baseline-partial")
    )
    results = Results([(one, Measured(0.72, 0.1)), (other, Measured(0.8, 0.1))])
    assert results.on("avazu", Lacking.both).changes("florist-paper") == {0.5: pytest.approx(-10)}
