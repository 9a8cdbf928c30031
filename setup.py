"""Maps the top-level folders to `florist.*` and builds the optional native kernels."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from setuptools import Extension, find_packages, setup

FOLDERS = ("protos", "common", "active_party", "passive_party", "cli")
NATIVE = Path("common/groups/native")


def packages() -> list[str]:
    """Every package below the folders, under its installed name."""
    found = []
    for folder in FOLDERS:
        found.append(f"florist.{folder}")
        found += [f"florist.{folder}.{name}" for name in find_packages(folder)]
    return found


def installed_file(distribution: str, ending: str) -> Path | None:
    """Where the build environment has this file of a distribution, if it has it."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if str(file).endswith(ending))
    return next((path for path in found if path.exists()), None)


def native_kernels() -> Extension:
    """With Intel's multi-buffer library where the build environment has it; optional altogether."""
    kernels = Extension(
        "florist.common.groups._native",
        sources=sorted(str(path) for path in NATIVE.glob("*.c")),
        depends=sorted(str(path) for path in NATIVE.glob("*.h")),
        extra_compile_args=[
            "-O3",
            "-fno-strict-aliasing",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
        ],
        optional=True,
    )
    library = installed_file("ipp-crypto-static", "/libcrypto_mb.a")
    header = installed_file("ipp-crypto-include", "/crypto_mb/x25519.h")
    if library and header:
        kernels.define_macros.append(("HAVE_CRYPTO_MB", None))
        kernels.include_dirs.append(str(header.parent.parent))
        kernels.extra_objects.append(str(library))
        kernels.extra_link_args.append("-Wl,--exclude-libs,ALL")
    return kernels


setup(
    packages=packages(),
    package_dir={f"florist.{folder}": folder for folder in FOLDERS},
    package_data={"": ["py.typed", "*.pyi", "*.proto", "*.yml", "*.js", "*.css"]},
    ext_modules=[native_kernels()],
)
