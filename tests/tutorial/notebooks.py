"""Execute the notebooks of the documentation; as a program, write their outputs into them.

python -m tests.tutorial.notebooks
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

from florist.common.core.ports import free_port

FOLDER = Path(__file__).parents[2] / "docs" / "tutorial" / "notebooks"

#: The address in the notebooks, whose port may be in use.
ADDRESS = "localhost:7443"


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Return the executed notebook; it runs in `folder` and raises the first error of a cell."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    address = f"localhost:{free_port()}"
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        cell.source = cell.source.replace(ADDRESS, address)
    # Cells run commands of the same installation, and outputs are the same on all machines.
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with patch.dict(os.environ, {"PATH": programs, "NO_COLOR": "1", "GRPC_VERBOSITY": "NONE"}):
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
        )
        client.execute()
    for cell, source in zip(notebook.cells, sources, strict=True):
        cell.source = source
    return notebook


def texts(notebook: nbformat.NotebookNode) -> str:
    """Return all texts that the cells have printed or shown."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            found.append(output.get("text", ""))
            found += [str(data) for data in output.get("data", {}).values()]
    return "\n".join(found)


def main() -> None:
    """Execute all notebooks and save them with their outputs."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
