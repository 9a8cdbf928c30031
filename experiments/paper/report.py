"""The HTML report of a reproduction: measured numbers next to the paper's, and plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.reports.html import (
    Html,
    card,
    facts_table,
    figures_table,
    markup,
    page,
    tag,
    titled_section,
)
from florist.experiments.paper.claims import check_all
from florist.experiments.paper.explanations import differences, mechanism
from florist.experiments.paper.numbers import (
    AUC_CHANGES,
    DROPS,
    FEATURE_ATTACKS,
    LABEL_ATTACKS,
    SAMPLES,
    TABLE_RATIO,
)
from florist.experiments.paper.plots import as_picture, plots_of
from florist.experiments.paper.recipes import (
    FLORIST,
    FULL,
    METHODS,
    PARTIAL,
    Condition,
    Lacking,
    RecipeKind,
    sampled_labels,
)
from florist.experiments.paper.results import NotMeasured, SeedMean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from florist.experiments.paper.claims import ClaimVerdict
    from florist.experiments.paper.explanations import DataFacts
    from florist.experiments.paper.numbers import DatasetName
    from florist.experiments.paper.recipes import Recipe, Scale
    from florist.experiments.paper.results import Results, What

ABSENT = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class PaperStudy:
    """The contents of the report."""

    scale: Scale
    data: Mapping[DatasetName, DataFacts]
    recipes: Sequence[Recipe]
    results: Results
    release: str


def render(study: PaperStudy) -> str:
    """Render the report; the same study gives the same text."""
    title = "Reproduction of the paper's tables and figures"
    sections = [titled_section("The paper's conclusions", _claims(study))]
    for recipe in study.recipes:
        heading = f"{recipe.dataset.capitalize()}, {recipe.source}: {recipe.shows}"
        sections.append(titled_section(heading, _recipe(recipe, study)))
    sections.append(titled_section("Experimental setup", _settings(study)))
    return page(title, _header(title, study), *sections)


def _header(title: str, study: PaperStudy) -> Html:
    told = (
        "Vertical Federated Learning without Revealing Intersection Membership · "
        f"FLORIST {study.release} · scale {study.scale.name}"
    )
    cards = [
        card(
            facts.dataset.capitalize(),
            f"{facts.rows:,} rows",
            f"for training, {facts.test_rows:,} for testing; source: {facts.source}; "
            f"{facts.positive_rate:.1%} positive",
        )
        for facts in study.data.values()
    ]
    return tag(
        "header",
        tag("h1", title),
        tag("p", told, class_="muted"),
        tag("dl", *cards, class_="cards"),
    )


def _settings(study: PaperStudy) -> Html:
    scale = study.scale
    facts = {
        "ratios of synthetic data": ", ".join(map(str, scale.ratios)),
        "seeds": f"{scale.seeds}"
        + ("; values are means ± standard deviations" if scale.seeds > 1 else ""),
        "epochs, batch": f"{scale.epochs}, {scale.batch_size:,}",
        "optimiser": f"Adam, learning rate {scale.learning_rate:g}",
        "model": "embeddings of width 4; 128, 128 | 128, 128 units; cut at |",
        "categories, numbers": f"in at least {scale.min_count} rows; {scale.scaling} scale",
        "attack AUC": "spectral attack on each batch, mean over all batches and epochs; not folded",
        "synthetic data": "redrawn in each epoch, and used like real data in training",
    }
    return facts_table(facts)


# --- conclusions ---


def _claims(study: PaperStudy) -> Html:
    checked = check_all(study.results)
    verdicts = [verdict for _, found in checked for verdict in found.values()]
    held = sum(verdict.holds is True for verdict in verdicts)
    known = sum(verdict.holds is not None for verdict in verdicts)
    head = tag("tr", *(tag("th", text) for text in ("", "the paper's conclusion", "measured here")))
    rows = [
        tag(
            "tr",
            tag("td", _mark(verdict), class_=_class(verdict)),
            tag(
                "td",
                claim.text,
                tag("br"),
                tag("span", f"{dataset.capitalize()}, {claim.where}", class_="muted"),
            ),
            tag("td", verdict.evidence),
        )
        for claim, found in checked
        for dataset, verdict in found.items()
        if verdict.holds is not None
    ]
    summary = f"{held} of {known} hold."
    if missing := len(verdicts) - known:
        summary += f" {missing} were not measured."
    return markup(
        tag("p", summary, " Comparable and similar mean a difference of at most 0.02."),
        tag("table", tag("thead", head), tag("tbody", *rows), class_="claims"),
    )


def _mark(verdict: ClaimVerdict) -> str:
    return "\N{CHECK MARK}" if verdict.holds else "\N{BALLOT X}"


def _class(verdict: ClaimVerdict) -> str:
    return "holds" if verdict.holds else "fails"


# --- tables and figures ---


def _recipe(recipe: Recipe, study: PaperStudy) -> Html:
    scale, facts = study.scale, study.data[recipe.dataset]
    results = study.results
    table = {
        RecipeKind.attack_table: _attacks,
        RecipeKind.change_table: _change,
        RecipeKind.samples_table: _samples,
        RecipeKind.utility: _utility,
        RecipeKind.convergence: _convergence,
    }[recipe.kind](recipe, results)
    pictures = [as_picture(plot) for plot in plots_of(recipe, results)]
    grid = tag("div", *pictures, class_="grid") if pictures else markup()
    changed = differences(facts, scale)
    why = tag("p", f"{changed} {mechanism(recipe, facts, scale)}") if changed else markup()
    return markup(grid, table, why)


def _attacks(recipe: Recipe, results: Results) -> Html:
    papers = {Lacking.labels: LABEL_ATTACKS, Lacking.features: FEATURE_ATTACKS}[recipe.lacking]
    rows = []
    for method, paper in papers[recipe.dataset].items():
        condition = Condition(recipe.dataset, recipe.lacking, method, TABLE_RATIO)
        measured = results.find(condition, "attack_auc")
        leak = results.find(condition, "leak")
        strongest = ABSENT
        if leak is not None:
            strongest = f"{leak.value:.3f} ({results.trials(condition)[0].leak_by})"
        folded = ABSENT if measured is None else f"{measured.folded:.4f}"
        rows.append(
            [method, *_beside(measured, paper), folded, f"{max(paper, 1 - paper):.4f}", strongest]
        )
    heads = [
        f"{recipe.lacking.symbol} = {TABLE_RATIO}",
        *_HEADS,
        "folded, here",
        "folded, paper",
        "strongest of all attacks, folded",
    ]
    return figures_table(heads, rows)


def _change(recipe: Recipe, results: Results) -> Html:
    papers = AUC_CHANGES[recipe.dataset]
    measured = results.on(recipe.dataset, Lacking.both).changes(FLORIST)
    rows = []
    for ratio in sorted({*papers, *measured}):
        change = measured.get(ratio)
        aucs = [
            _cell(results.find(Condition(recipe.dataset, Lacking.both, method, ratio), "auc"))
            for method in (FLORIST, PARTIAL)
        ]
        paper = papers.get(ratio)
        difference = None if change is None or paper is None else change - paper
        rows.append([f"{ratio}", *(_percent(v) for v in (change, paper, difference)), *aucs])
    heads = [recipe.lacking.symbol, *_HEADS, "AUC of FLORIST", "AUC of baseline-partial"]
    return figures_table(heads, rows)


def _samples(recipe: Recipe, results: Results) -> Html:
    rows = []
    for number, paper in SAMPLES.items():
        condition = sampled_labels(recipe.dataset, number)
        auc, attack = (results.find(condition, what) for what in _AUCS)
        rows.append([f"{number}", *_beside(auc, paper.auc), *_beside(attack, paper.attack_auc)])
    heads = [f"AUC, {head}" for head in _HEADS] + [f"attack AUC, {head}" for head in _HEADS]
    return figures_table(["labels averaged", *heads], rows)


def _utility(recipe: Recipe, results: Results) -> Html:
    group = results.on(recipe.dataset, recipe.lacking)
    ratios = results.ratios(recipe.dataset, recipe.lacking, PARTIAL)
    rows = []
    for what in ("auc", "ace"):
        for method in (FULL, PARTIAL, *METHODS[recipe.lacking]):
            cells = []
            for ratio in ratios:
                try:
                    cells.append(f"{group(what, method, ratio):.4f}")
                except NotMeasured:
                    cells.append(ABSENT)
            rows.append([f"{method}, {what.upper()}", *cells])
    numbers = figures_table(["", *(f"{recipe.lacking.symbol} = {r}" for r in ratios)], rows)
    details = tag("details", tag("summary", "Show the numbers"), numbers)
    named = [
        drop
        for drop in DROPS
        if drop.dataset == recipe.dataset
        and drop.method in (PARTIAL, *METHODS[recipe.lacking])
        # The text states the drop of baseline-partial in the section on labels.
        and (drop.method != PARTIAL or recipe.lacking is Lacking.labels)
    ]
    if not named:
        return markup(tag("p", _NO_NUMBERS), details)
    rows = []
    for drop in named:
        what = f"{drop.method} against {drop.baseline}, {recipe.lacking.symbol} = {drop.ratio}"
        try:
            change = group.change(drop.method, drop.ratio, drop.baseline)
        except NotMeasured:
            rows.append([what, ABSENT, _percent(-drop.percent), ABSENT])
        else:
            values = (change, -drop.percent, change + drop.percent)
            rows.append([what, *map(_percent, values)])
    return markup(
        tag("p", _NO_NUMBERS, " Its text states these changes of the AUC:"),
        figures_table(["", *_HEADS], rows),
        details,
    )


def _convergence(recipe: Recipe, results: Results) -> Html:
    rows = []
    for ratio in results.ratios(recipe.dataset, recipe.lacking, FLORIST):
        condition = Condition(recipe.dataset, recipe.lacking, FLORIST, ratio)
        for figures in results.trials(condition)[0].epochs:
            cells = (figures.loss, figures.log_loss, figures.auc, figures.ace)
            shown = (ABSENT if cell is None else f"{cell:.4f}" for cell in cells)
            rows.append([f"{ratio}", f"{figures.epoch + 1}", *shown])
    heads = [recipe.lacking.symbol, "epoch", "training loss", "test loss", "test AUC", "test ACE"]
    numbers = figures_table(heads, rows)
    details = tag("details", tag("summary", "Show the numbers"), numbers)
    return markup(tag("p", _NO_NUMBERS), details)


# --- numbers ---

_HEADS = ("here", "paper", "difference")
_AUCS: tuple[What, What] = ("auc", "attack_auc")
_NO_NUMBERS = "The paper shows this as a plot, without numbers."


def _cell(figure: SeedMean | None) -> str:
    if figure is None:
        return ABSENT
    spread = "" if figure.spread is None else f" ± {figure.spread:.4f}"
    return f"{figure.value:.4f}{spread}"


def _beside(figure: SeedMean | None, paper: float) -> Iterable[str]:
    """Return our value, the paper's, and the difference."""
    difference = ABSENT if figure is None else f"{figure.value - paper:+.4f}"
    return _cell(figure), f"{paper:.4f}", difference


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:+.2f}%"
