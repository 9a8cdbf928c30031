"""Maps the top-level folders to `florist.*` and builds the optional native kernels."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, find_packages, setup

FOLDERS = ("protos", "common", "active_party", "passive_party", "experiments", "api", "cli")
#: Packages with C sources in a folder `native`, each made into a module `_native`.
WITH_KERNELS = ("common/groups", "common/training")


def packages() -> list[str]:
    """Every package below the folders, under its installed name."""
    found = ["florist"]
    for folder in FOLDERS:
        found.append(f"florist.{folder}")
        found += [f"florist.{folder}.{name}" for name in find_packages(folder)]
    return found


def native_kernels(package: str) -> Extension:
    """Optional: without a C compiler everything works, more slowly."""
    sources = Path(package, "native")
    return Extension(
        f"florist.{package.replace('/', '.')}._native",
        sources=sorted(str(path) for path in sources.glob("*.c")),
        depends=sorted(str(path) for path in sources.glob("*.h")),
        extra_compile_args=[
            "-O3",
            "-fno-strict-aliasing",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
        ],
        optional=True,
    )


setup(
    packages=packages(),
    package_dir={"florist": "florist"} | {f"florist.{folder}": folder for folder in FOLDERS},
    package_data={"": ["py.typed", "*.pyi", "*.proto", "*.yml", "*.js", "*.css"]},
    ext_modules=[native_kernels(package) for package in WITH_KERNELS],
)
