"""The notebooks of the documentation: they run, and what they show is current."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import nbformat
import pytest

import florist
from tests.tutorial.notebooks import FOLDER, execute, texts

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_was_executed_without_errors(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    advice = "run: python -m tests.tutorial.notebooks"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), advice
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    shown = texts(notebook)
    assert not re.search(r"/(tmp|home|root|work|usr)/|\x1b", shown), "paths or colours"
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_the_public_api_only(path: Path) -> None:
    code = "\n".join(
        line
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if not line.startswith("!")
    )
    used = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "florist"
    }
    assert used
    assert used <= set(florist.__all__)
    assert "import florist." not in code
    assert "from florist" not in code


@pytest.mark.whole
def test_a_simulation_gives_a_data_frame_and_a_plot(tmp_path: Path) -> None:
    notebook = execute(FOLDER / "simulate.ipynb", tmp_path)
    found = dict(re.findall(r"^(default|florist-paper) +(\d\.\d+)$", texts(notebook), re.MULTILINE))
    assert float(found["default"]) < float(found["florist-paper"])
    kinds = {
        kind for cell in notebook.cells for out in cell.get("outputs", []) for kind in _kinds(out)
    }
    assert "image/png" in kinds
    assert "text/html" in kinds, "a data frame"


@pytest.mark.whole
def test_two_parties_train_and_predict(tmp_path: Path) -> None:
    shown = texts(execute(FOLDER / "two-parties.ipynb", tmp_path))
    served = re.search(r"AUC of the served predictions: (\d\.\d+)", shown)
    trained = re.search(r"^FLORIST, nobody learns who is shared +(\d\.\d+)$", shown, re.MULTILINE)
    assert served is not None
    assert trained is not None
    assert float(served[1]) == pytest.approx(float(trained[1]), abs=2e-4)
    assert float(served[1]) > 0.8
    assert "✗" not in shown


def _kinds(output: nbformat.NotebookNode) -> list[str]:
    return [*output.get("data", {})]
