"""The vector kernels, in a build that checks each bound that they rely on."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from florist.common.groups import kernels

if TYPE_CHECKING:
    from florist.common.groups.kernels import Kernels

NATIVE = Path(kernels.__file__).parent / "native"


def compile_checked(*arguments: str | Path) -> None:
    """Compile with the compiler of this Python, without optimisation: it takes seconds."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    headers = Path(sysconfig.get_paths()["include"])
    if shutil.which(compiler[0]) is None or not (headers / "Python.h").exists():
        pytest.skip("no C compiler, or no Python headers")
    flags = ["-O0", "-DFLORIST_CHECK_BOUNDS", f"-I{NATIVE}", f"-I{headers}"]
    subprocess.run([*compiler, *flags, *map(str, arguments)], check=True, timeout=300)


def test_the_largest_limbs(native: Kernels, tmp_path: Path) -> None:
    if not native.ifma_available():
        pytest.skip("this CPU has no AVX-512 IFMA")
    program = tmp_path / "extremes"
    compile_checked(Path(__file__).with_name("field25519_ifma_extremes.c"), "-o", program)
    result = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr) == ("all bounds held\n", "")


#: Compares this build with the installed one; a violated bound aborts it.
COMPARE = """
import os, sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from florist.common.groups import _native as usual

loader = ExtensionFileLoader("_native", sys.argv[1])
checked = module_from_spec(spec_from_loader("_native", loader))
loader.exec_module(checked)

limbs = [0, 1, 2**51 - 2, 2**51 - 1]
extremes = [sum(limbs[choice >> 2 * i & 3] << 51 * i for i in range(5)) for choice in range(1024)]
points = b"".join(number.to_bytes(32, "little") for number in extremes[::19]) + os.urandom(32 * 50)
uniform = b"\\xff" * 48 + bytes(48) + os.urandom(48 * 70)
for name in sys.argv[2:]:
    multiply, same = getattr(usual, f"x25519_{name}"), getattr(checked, f"x25519_{name}")
    for scalar in (bytes(32), b"\\xff" * 32, os.urandom(32)):
        first, second = bytearray(len(points)), bytearray(len(points))
        multiply(points, scalar, first)
        same(points, scalar, second)
        assert first == second, name
if "ifma" in sys.argv:
    first, second = bytearray(32 * 72), bytearray(32 * 72)
    usual.elligator2_map(uniform, first)
    checked.elligator2_map_ifma(uniform, second)
    assert first == second
    assert checked.on_curve_batch_ifma(first[64:], os.urandom(16 * 9))

    # Any limbs that a coordinate may have; the formulas agree also outside the curve.
    largest = [2**51 + 2**17 - 1] + 4 * [2**52 - 1]
    choices = [os.urandom(20) for _ in range(60)] + [bytes(20), b"\\xff" * 20]
    limbs = [largest[i % 5] * (each[i] & 1) for each in choices for i in range(20)]
    any_points = b"".join(limb.to_bytes(8, "little") for limb in limbs)
    first, second = bytearray(32 * len(choices)), bytearray(32 * len(choices))
    usual.ristretto_encode(any_points, first)
    checked.ristretto_encode_ifma(any_points, second)
    assert first == second
    size = len(points) // 32
    decoded, flags = bytearray(160 * size), bytearray(size)
    checked.ristretto_decode_ifma(points, decoded, flags)
    decoded_too, flags_too = bytearray(160 * size), bytearray(size)
    usual.ristretto_decode(points, decoded_too, flags_too)
    assert flags == flags_too
    table = bytearray(64 * 8 * 16 * 8)
    usual.ristretto_table(any_points[-160:], table)
    scalars = b"\\xff" * 32 + bytes(32) + os.urandom(32 * 11)
    out, out_too = bytearray(160 * 13), bytearray(160 * 13)
    checked.ristretto_multiply_table_ifma(table, scalars, out)
    usual.ristretto_multiply_table(table, scalars, out_too)
    first, second = bytearray(32 * 13), bytearray(32 * 13)
    usual.ristretto_encode(out, first)
    usual.ristretto_encode(out_too, second)
    assert first == second
    rows = b"".join((i % 30).to_bytes(8, "little") for i in range(40))
    coordinates = b"".join((i % 7).to_bytes(4, "little") for i in range(40 * 5))
    one, other = bytearray(any_points[-320:] * 7), bytearray(any_points[-320:] * 7)
    checked.ristretto_accumulate_ifma(any_points[: 320 * 31], rows, coordinates, one)
    usual.ristretto_accumulate(any_points[: 320 * 31], rows, coordinates, other)
    first, second = bytearray(32 * 14), bytearray(32 * 14)
    usual.ristretto_encode(one, first)
    usual.ristretto_encode(other, second)
    assert first == second
print("all bounds held")
"""


def test_whole_kernels(native: Kernels, tmp_path: Path) -> None:
    engines = [name for name in ("ifma", "avx2") if getattr(native, f"{name}_available")()]
    if not engines:
        pytest.skip("this CPU runs none of the vector kernels")
    library = tmp_path / "_native.so"
    compile_checked("-shared", "-fPIC", *sorted(NATIVE.glob("*.c")), "-o", library)
    result = subprocess.run(
        [sys.executable, "-c", COMPARE, library, *engines],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("all bounds held\n", "")
