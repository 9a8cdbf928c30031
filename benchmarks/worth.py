"""The gain and the importance of columns, as a party's report has them, next to the truth.

Public data of two organisations are divided between two processes, which align, train and evaluate.
The active party's evaluation.json contains the gain over its own data alone, and the importance of
its columns. Here all features of all people are known, so both can be computed without any
correction, on all people who were held out. With the same models, the evaluation is then repeated
in this process with other people in each party's table, to count how often the interval of the gain
contains the truth.

    python benchmarks/worth.py --real FOLDER --output results/worth.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pyarrow import parquet

from florist.active_party.worth import train_on_own_table
from florist.cli.init import write_first_files
from florist.cli.party_processes import NAMES, run_stage_of_both
from florist.common.bundle.loading import load_bundle
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.data.encoded_columns import encoded_columns
from florist.common.data.raw_table import RawTable
from florist.common.evaluation import metrics
from florist.common.evaluation.metric_estimates import estimate_metrics
from florist.common.evaluation.paired_estimates import ScoredPeople, private_gain
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffles
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.experiments.methods import METHODS
from florist.experiments.people import HeldOut
from florist.experiments.real_data import load_real_data
from florist.experiments.sample_data import evaluation_path
from florist.experiments.split_people import SplitPeople
from florist.experiments.two_parties import trial_of

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.core.roles import RoleName
    from florist.common.data.features import Features
    from florist.common.evaluation.paired_estimates import Difference
    from florist.experiments.people import People

DATA_SETS = {
    "default_credit": None,
    "bank_marketing": None,
    "diabetes130": None,
    "sba_loans": 100_000,
}
#: The fraction of the evaluation people that each party lacks.
LACKED = 0.3
#: How often the evaluation is repeated with other people.
REPETITIONS = 100


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluatedSplit(SplitPeople):
    """Half of the people are evaluation people; each party lacks some of them."""

    seed: int = 0

    def write(self, active: Path, passive: Path) -> None:
        SplitPeople.write(self, active, passive)
        random = np.random.default_rng([self.seed, 3])
        paths: dict[RoleName, Path] = {"active": active, "passive": passive}
        for role, path in paths.items():
            has = random.random(len(self.people.test)) >= LACKED
            parquet.write_table(self.table(role, self.people.test[has]), evaluation_path(path))

    def settings(self, role: RoleName) -> dict[str, object]:
        return SplitPeople.settings(self, role) | {
            "agreement.training.test_table": False,
            "agreement.evaluation.table": True,
            "training.worth": True,
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AllFeatures:
    """The held-out people with all their features, and the models of a run."""

    active: ActiveBundle
    own: Features
    embeddings: Tensor
    labels: npt.NDArray[np.int64]
    #: The predictions of the baseline.
    alone: npt.NDArray[np.float64]

    def predict(
        self, people: npt.NDArray[np.int64], whose: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Predict for people with the embeddings of others."""
        found = self.active.predict(self.embeddings[torch.from_numpy(whose)], self.own.take(people))
        return found.numpy().astype(np.float64)

    def repeated(self, random: np.random.Generator) -> Difference:
        """Estimate the gain with other people, as an evaluation with `stand_ins: once` does."""
        everyone = np.arange(len(self.labels))
        theirs = random.permutation(everyone[random.random(len(everyone)) >= LACKED])
        reserved, in_union = np.split(theirs, [len(theirs) // 3])
        ours = random.permutation(everyone[random.random(len(everyone)) >= LACKED])
        scored = ours[: len(reserved)]
        is_shared = np.isin(scored, in_union)
        whose = np.where(is_shared, scored, reserved[: len(scored)])
        partners = shuffles(len(scored), 8, random)
        others = np.stack([self.predict(scored, whose[p]) for p in partners.T], axis=1)
        labels, predictions = self.labels[scored], self.predict(scored, whose)
        shuffled, shared = Shuffled(others, partners), int(is_shared.sum())
        found = estimate_metrics(labels, predictions, shared, shuffled)
        people = ScoredPeople(labels, predictions, shuffled, shared, 0.0)
        return private_gain(people, found, self.alone[scored]).auc


def run(people: People, seed: int) -> dict[str, Any]:
    """Run both parties, and return the figures of the report next to the truth."""
    torch.set_num_threads(1)
    split = EvaluatedSplit(people, trial_of(METHODS["default"], seed).holdings(people.train), seed)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        write_first_files(directory, NAMES, f"127.0.0.1:{free_port()}", split)
        for stage in ("align", "train", "evaluate"):
            run_stage_of_both(directory, stage)
        configs = {role: load_config(directory / f"{role}.yml") for role in ("active", "passive")}
        runs = {role: RunDirectory(config.run_directory) for role, config in configs.items()}
        facts = json.loads((runs["active"].evaluation / "evaluation.json").read_text())
        active, passive = (
            load_bundle(runs["active"], "active"),
            load_bundle(runs["passive"], "passive"),
        )
        baseline, _ = train_on_own_table(configs["active"], active, NoProgress())

    def features(role: RoleName) -> Any:  # noqa: ANN401
        bundle = active if role == "active" else passive
        table = split.table(role, people.test)
        ids = table.column(split.id_column).combine_chunks()
        raw = RawTable.from_arrow("people", ids, table.select(split.columns(role)))
        return bundle.preprocessing.transform(raw)

    own, embeddings = features("active"), passive.embed(features("passive"))
    labels = people.labels[people.test]

    def auc(changed: Any) -> float:  # noqa: ANN401
        return metrics.auc(labels, active.predict(embeddings, changed).numpy())

    joint = auc(own)
    alone = baseline.predict(own, len(labels))
    true_gain = joint - metrics.auc(labels, alone)
    known = AllFeatures(active, own, embeddings, labels, alone)
    draws = np.random.default_rng([seed, 4])
    repeated = [known.repeated(draws) for _ in range(REPETITIONS)]
    random = np.random.default_rng(0)
    drops = {
        column.name: joint - auc(column.permuted(own, random.permutation(len(own))))
        for column in encoded_columns(active.preprocessing)
    }
    worth = facts["worth"]
    return {
        "seed": seed,
        "scored": facts["scored"],
        "shared_share": facts["sizes"]["shared_estimate"] / facts["scored"],
        "gain": worth["comparison"]["gain"]["auc"],
        "baseline_auc": worth["comparison"]["baseline"]["auc"]["value"],
        "true_gain": true_gain,
        "repetitions": len(repeated),
        "repetitions_covered": sum(each.low <= true_gain <= each.high for each in repeated),
        "repeated_mean": fmean(each.value for each in repeated),
        "repeated_deviation": stdev(each.value for each in repeated),
        "repeated_error": fmean(each.standard_error for each in repeated),
        "columns": [
            {**column, "truth": drops[column["column"]]}
            for column in worth["importance"]["columns"]
        ],
    }


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over seeds, and how often the truth is in the interval."""

    def covered(found: dict[str, Any], truth: float) -> bool:
        return bool(found["low"] <= truth <= found["high"])

    columns = [column for run in runs for column in run["columns"]]
    return {
        "data_set": name,
        "seeds": len(runs),
        "scored": round(fmean(run["scored"] for run in runs)),
        "shared_share": fmean(run["shared_share"] for run in runs),
        "baseline_auc": fmean(run["baseline_auc"] for run in runs),
        "gain": fmean(run["gain"]["value"] for run in runs),
        "half_width": fmean((run["gain"]["high"] - run["gain"]["low"]) / 2 for run in runs),
        "true_gain": fmean(run["true_gain"] for run in runs),
        "covered": sum(covered(run["gain"], run["true_gain"]) for run in runs),
        "repetitions": sum(run["repetitions"] for run in runs),
        "repetitions_covered": sum(run["repetitions_covered"] for run in runs),
        "columns": len(columns) // len(runs),
        "columns_covered": fmean(covered(column, column["truth"]) for column in columns),
        "runs": runs,
    }


def as_markdown(summaries: list[dict[str, Any]]) -> str:
    """Return one row per data set."""
    heads = (
        *("data set", "people scored", "shared", "AUC alone", "gain in the report", "±"),
        *("true gain", "in the interval", "of repetitions", "columns in the interval"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for s in summaries:
        cells = (
            *(s["data_set"], f"{s['scored']:,}", f"{s['shared_share']:.0%}"),
            *(f"{s['baseline_auc']:.3f}", f"{s['gain']:+.4f}", f"{s['half_width']:.4f}"),
            *(f"{s['true_gain']:+.4f}", f"{s['covered']} of {s['seeds']}"),
            f"{s['repetitions_covered'] / s['repetitions']:.0%} of {s['repetitions']}",
            f"{s['columns_covered']:.0%} of {s['columns']}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-set", action="append", choices=list(DATA_SETS))
    parser.add_argument("--output", type=Path, help="for all numbers, after each data set")
    options = parser.parse_args()
    summaries = []
    for name in options.data_set or DATA_SETS:
        if not (options.real / name).is_dir():
            print(f"{name}: not in {options.real}; left out", file=sys.stderr)
            continue
        people = load_real_data(
            name, options.real, rows=DATA_SETS[name], split=HeldOut(test=0.5, validation=0.0)
        )
        runs = []
        for seed in range(options.seeds):
            runs.append(run(people, seed))
            found = {key: value for key, value in runs[-1].items() if key != "columns"}
            print(name, json.dumps(found), file=sys.stderr)
        summaries.append(summary(name, runs))
        if options.output is not None:
            facts = {"lacked": LACKED, "table": as_markdown(summaries), "data_sets": summaries}
            options.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(as_markdown(summaries))


if __name__ == "__main__":
    main()
