"""Maps the top-level folders to `florist.*` and builds the optional native kernels.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDERS = ("protos", "common", "active_party", "passive_party", "experiments", "api", "cli")
#: Packages with C sources in a folder `native`; each is compiled into a module `_native`.
WITH_KERNELS = ("common/groups", "common/oblivious_transfer", "common/privacy", "common/training")
#: The kernels parse data from the peer, so a memory error must not become code execution: stack
#: canaries, checked string functions, and no memory that is both writable and executable.
HARDENED_CODE = ("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")
#: Full RELRO (read-only relocations, resolved at load time). Options of the ELF linkers only.
HARDENED_LINK = ("-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack")


def packages() -> list[str]:
    """Return every package below the folders, under its installed name."""
    found = ["florist"]
    for folder in FOLDERS:
        found.append(f"florist.{folder}")
        found += [f"florist.{folder}.{name}" for name in find_packages(folder)]
    return found


def native_kernels(package: str) -> Extension:
    """Describe a package's kernels. They are optional: without a C compiler the code is slower."""
    sources = Path(package, "native")
    return Extension(
        f"florist.{package.replace('/', '.')}._native",
        sources=sorted(str(path) for path in sources.glob("*.c")),
        # setup.py, so that kernels are compiled again when the options change.
        depends=["setup.py", *sorted(str(path) for path in sources.glob("*.h"))],
        extra_compile_args=[
            "-O3",
            "-fno-strict-aliasing",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            *HARDENED_CODE,
        ],
        extra_link_args=[*HARDENED_LINK] if sys.platform == "linux" else [],
        optional=True,
    )


class Wheel(bdist_wheel):
    """Tag a wheel as pure Python (py3-none-any) if no kernel could be compiled."""

    def run(self) -> None:
        self.run_command("build")
        self.skip_build = True
        command = self.get_finalized_command("build_ext")
        assert isinstance(command, build_ext)
        if not any(Path(output).exists() for output in command.get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(
    packages=packages(),
    package_dir={"florist": "florist"} | {f"florist.{folder}": folder for folder in FOLDERS},
    package_data={"": ["py.typed", "*.pyi", "*.proto", "*.yml", "*.js", "*.css"]},
    ext_modules=[native_kernels(package) for package in WITH_KERNELS],
    cmdclass={"bdist_wheel": Wheel},
)
