"""The wheel as a user gets it: installed without a compiler, with and without native kernels."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.elf import missing_protections

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
#: What a source tree consists of; nothing that was built in place.
SOURCES = (
    *("protos", "common", "active_party", "passive_party", "experiments", "api", "cli", "florist"),
    *("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"),
    "constraints.txt",
)
NO_COMPILER = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}


def build_wheel(folder: Path, environment: dict[str, str]) -> Path:
    """Build a wheel from a copy of the sources."""
    source = folder / "source"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(source)],
        check=True,
        env=os.environ | environment,
        timeout=800,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment into which one wheel was installed, with no compiler on its path."""

    binaries: Path
    folder: Path

    def run(self, *command: str) -> str:
        """Run one of the installed commands and return all that it prints."""
        done = subprocess.run(
            [str(self.binaries / command[0]), *command[1:]],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start one of the installed commands."""
        return subprocess.Popen(
            [str(self.binaries / command[0]), *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.binaries), "HOME": str(self.folder)} | NO_COMPILER


def install(wheel: Path, folder: Path) -> Installed:
    """Install the wheel into a new environment.

    Third-party packages come from the environment that runs the tests: installing them again would
    take minutes and tell nothing about this wheel.
    """
    home = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    (packages,) = (home / "lib").glob("python*/site-packages")
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    dependencies |= {path for path in sys.path if path.endswith("site-packages")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--ignore-installed", str(wheel)], check=True)
    return Installed(home / "bin", folder)


def align(installed: Installed) -> str:
    """Align two small tables over mutual TLS and return the active party's output."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    installed.run("florist", "init", "--address", f"localhost:{port}", "trial")
    parties = [
        installed.start(
            *("florist-party", "--role", role, "--stage", "align"),
            *("--config", f"trial/{role}.yml", "--log-format", "text"),
        )
        for role in ("active", "passive")
    ]
    try:
        outputs = [party.communicate(timeout=600)[0] for party in parties]
    finally:
        for party in parties:
            party.kill()
    assert [party.returncode for party in parties] == [0, 0], "\n".join(outputs)
    return outputs[0]


def check(installed: Installed) -> str:
    """Check the version and where the code comes from; align; return the engine that was used."""
    version = installed.run("florist", "--version")
    assert re.fullmatch(r"florist \d+\.\d+\.\d+\S*\n", version)
    code = "import florist.common.groups as groups; print(groups.__file__)"
    assert str(installed.folder) in installed.run("python", "-c", code)
    found = re.search(r"engine (\w+)", align(installed))
    assert found is not None
    return found[1]


def test_wheel_with_kernels_installs_without_a_compiler(tmp_path: Path) -> None:
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("needs a C compiler to build the kernels")
    wheel = build_wheel(tmp_path, {})
    assert re.search(r"-cp3\d+-cp3\d+-\w*linux_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as content:
        kernels = [name for name in content.namelist() if name.endswith(".so")]
        assert len(kernels) == 4
        for kernel in kernels:
            assert missing_protections(Path(content.extract(kernel, tmp_path / "kernels"))) == []
    assert check(install(wheel, tmp_path)) in {"ifma", "avx2", "cryptography"}


def test_wheel_built_without_a_compiler_is_pure_python(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, NO_COMPILER)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert check(install(wheel, tmp_path)) == "cryptography"
