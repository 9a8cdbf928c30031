"""FLORIST's union compared with SecretFlow's ECDH-PSI on the same IDs, in one run.

    python -m venv /tmp/spu && /tmp/spu/bin/pip install spu==0.9.5
    python -m benchmarks.against_psi --spu-python /tmp/spu/bin/python --ids 1048576 --json

An intersection exponentiates each ID twice and reveals to both parties whom they share; a union
exponentiates each 4.5 times, if half are shared (6.5 times by Algorithm 1), and reveals it to
neither. `curve25519` is
SecretFlow's fast option, which uses a hash of the ID directly as a point; `elligator2` maps it to
the curve, as FLORIST does. CPU seconds are those of both parties from start to exit. SecretFlow's
connection is not encrypted here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.psu import ROLES, run_both
from florist.common.core.ports import free_port
from florist.experiments.sample_data import IdSample

CURVES = {"curve25519": "CURVE_25519", "elligator2": "CURVE_25519_ELLIGATOR2"}

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    """The cost of both parties together; the memory is that of the larger one."""

    cpu_s: float
    exponentiations: int
    us_per_exponentiation: float
    peak_rss_mb: float

    @classmethod
    def of(cls, cpu_s: float, exponentiations: int, peak_rss_mb: float) -> Cost:
        each = round(cpu_s / exponentiations * 1e6, 2)
        return cls(round(cpu_s, 2), exponentiations, each, peak_rss_mb)


@dataclass(frozen=True)
class Comparison:
    """The result, printed as JSON."""

    ids: int
    florist: Cost
    secretflow: dict[str, Cost]
    #: FLORIST's CPU seconds divided by SecretFlow's.
    over: dict[str, float]


def main() -> None:
    """Run all and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--spu-python", required=True, help="a Python interpreter with `spu` installed"
    )
    parser.add_argument("--ids", type=int, default=1 << 20, help="IDs per side; half are shared")
    parser.add_argument("--union", default="merged", choices=["merged", "algorithm-1"])
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    arguments = parser.parse_args()
    ours = union(arguments.ids, arguments.union)
    theirs = {
        curve: intersection(arguments.spu_python, curve, arguments.ids)
        for curve in arguments.curves
    }
    over = {curve: round(ours.cpu_s / cost.cpu_s, 3) for curve, cost in theirs.items()}
    result = Comparison(arguments.ids, ours, theirs, over)
    if arguments.json:
        print(json.dumps(asdict(result)))
        return
    for name, cost in {"florist": ours, **theirs}.items():
        print(f"{name:>12}  {cost}")
    print(f"CPU seconds of FLORIST divided by those of SecretFlow: {over}")


def union(ids: int, protocol: str) -> Cost:
    """Measure FLORIST's union with `psu.py`."""
    command = [sys.executable, str(HERE / "psu.py"), "--ids", str(ids), "--json"]
    command += ["--union", protocol]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    return Cost.of(result["cpu_s"], result["exponentiations"], result["peak_rss_mb"])


def intersection(python: str, curve: str, ids: int) -> Cost:
    """Measure SecretFlow's intersection: two processes over localhost that both get the result."""
    sample = IdSample(ids, ids, ids // 2)
    with tempfile.TemporaryDirectory(prefix="florist-bench-") as folder:
        tables = [Path(folder) / f"{role}.csv" for role in ROLES]
        results = [Path(folder) / f"{role}-shared.csv" for role in ROLES]
        sample.write(*tables)
        hosts = [f"127.0.0.1:{free_port()}" for _ in ROLES]
        party = [python, str(HERE / "psi_party.py"), CURVES[curve], sample.id_column]
        usages = run_both(
            [
                [*party, str(rank), str(table), str(result), *hosts]
                for rank, (table, result) in enumerate(zip(tables, results, strict=True))
            ]
        )
        found = [sum(1 for _ in result.open()) - 1 for result in results]
    if any(usage.exit_code for usage in usages) or found != [sample.shared] * 2:
        sys.exit(f"the intersection failed: {usages}, {found} people in the results")
    cpu = sum(usage.cpu_s for usage in usages)
    return Cost.of(cpu, 2 * (ids + ids), max(usage.peak_rss_mb for usage in usages))


if __name__ == "__main__":
    main()
