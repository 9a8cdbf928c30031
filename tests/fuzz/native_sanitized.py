"""The native kernels with sanitizers: `make fuzz-native`.

Compiles them with a harness in C, with the address and undefined-behaviour sanitizers, and runs it.
The vector kernels, for which the compiler would need minutes, are not optimised; they run if this
CPU has the instructions. Hashing by them is compared with the portable code, and the two X25519
vector kernels with each other.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("groups", "oblivious_transfer", "privacy", "training")
KERNELS = tuple(ROOT / f"common/{name}/native" for name in PACKAGES)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class CannotSanitize(Exception):  # noqa: N818 - a reason to skip
    """There is no compiler, or it has no sanitizers."""


def build(folder: Path) -> Path:
    """Compile the harness and return its path.

    Raises:
        CannotSanitize: why not.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotSanitize("there is no C compiler")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    tried = [compiler, *SANITIZERS, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        raise CannotSanitize(f"{compiler} has no address and undefined-behaviour sanitizers")
    if subprocess.run([folder / "probe"], capture_output=True, check=False).returncode:
        raise CannotSanitize("programs with sanitizers do not run here")
    include = ["-fno-strict-aliasing", *(f"-I{kernel}" for kernel in KERNELS)]
    sources = [path for kernel in KERNELS for path in sorted(kernel.glob("*.c"))]
    inputs = [ROOT / "tests/fuzz/native_harness.c"]
    for path in sources:
        if path.stem.endswith(("_ifma", "_avx2")):
            inputs.append(folder / f"{path.stem}.o")
            options = ["-O0", "-g", *SANITIZERS, *include]
            command = [compiler, *options, "-c", str(path), "-o", str(inputs[-1])]
            subprocess.run(command, check=True)
        elif path.name != "module.c":
            inputs.append(path)
    harness = folder / "harness"
    command = [compiler, "-O1", "-g", *SANITIZERS, *include, *map(str, inputs)]
    subprocess.run([*command, "-o", str(harness)], check=True)
    return harness


def main() -> None:
    seconds, seed = sys.argv[1], str(secrets.randbits(63))
    with tempfile.TemporaryDirectory() as folder:
        try:
            harness = build(Path(folder))
        except CannotSanitize as reason:
            sys.stdout.write(f"skipped: {reason}\n")
            return
        sys.stdout.write(f"seed {seed}\n")
        sys.stdout.flush()
        sys.exit(subprocess.run([harness, seconds, seed], check=False).returncode)


if __name__ == "__main__":
    main()
