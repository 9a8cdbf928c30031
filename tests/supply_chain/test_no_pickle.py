"""Nothing is ever unpickled or evaluated, so a file or a message cannot contain code.

The only use of pickle is the process pool of `florist simulate`: between processes that one user
started, through pipes that nobody else can access. It is named below; nothing else may use one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    "active_party", "api", "cli", "common", "experiments", "florist", "passive_party", "protos",
)  # fmt: skip

#: Modules whose readers execute what they read.
MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal",
    "multiprocessing", "jsonpickle", "pandas", "code", "codeop", "imp",
}  # fmt: skip
#: Functions that do, in modules that also have safe ones.
FUNCTIONS = {
    "torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "numpy.load", "np.load",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "eval", "exec", "compile",
    "__import__", "os.system", "os.popen",
}  # fmt: skip
CLASSES = {"ProcessPoolExecutor", "Unpickler", "UnsafeLoader", "FullLoader", "CLoader"}

#: Parallel trials in processes of the same user.
POOL = "experiments/grid.py"
#: Asks where the files of these modules are, and uses nothing of them.
LOCKING = "common/core/interrupts.py"


class _WithoutTypeImports(ast.NodeTransformer):
    """Removes blocks that only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def findings(path: Path) -> list[str]:
    """Return what a file uses of these, with line numbers."""
    found = []
    for node in ast.walk(_WithoutTypeImports().visit(ast.parse(path.read_bytes()))):
        match node:
            case ast.Import(names=names):
                used = [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                used = [module.partition(".")[0], *(alias.name for alias in names)]
            case ast.Call(function):
                used = [ast.unparse(function)]
            case ast.keyword(arg="allow_pickle" | "shell" as name, value=value) if (
                ast.unparse(value) != "False"
            ):
                used = [f"{name}="]
            case _:
                continue
        bad = [name for name in used if name in MODULES | FUNCTIONS | CLASSES or name.endswith("=")]
        found += [f"line {getattr(node, 'lineno', '?')}: {name}" for name in bad]
    return found


def test_no_source_file_uses_unsafe_readers() -> None:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): findings(path) for path in files}
    for path in [path for path in found if path.endswith("_pb2.py")]:
        assert not [each for each in found.pop(path) if "exec" in each or "eval" in each]
    pool = found.pop(POOL)
    assert {each.split()[-1] for each in pool} == {"multiprocessing", "ProcessPoolExecutor"}
    assert {each.split()[-1] for each in found.pop(LOCKING)} == {"multiprocessing"}
    uses = re.findall(r"(?<!import )multiprocessing\.\S*", (ROOT / LOCKING).read_text())
    assert set(uses) == {"multiprocessing.process,", "multiprocessing.queues,"}, "in a list only"
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "torch.load(x)",
        "np.load(x, allow_pickle=True)",
        "eval(x)",
        "yaml.load(x, Loader)",
        "from yaml import UnsafeLoader",
        "subprocess.run(x, shell=True)",
    ],
)
def test_the_search_finds_unsafe_readers(code: str, tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(code)
    assert findings(tmp_path / "source.py")


_RUN = """
import pickle, sys
from pathlib import Path
from florist.experiments.methods import METHODS
from florist.experiments.people import Generated, PeopleSettings, HeldOut, load_people
from florist.experiments.trial import Trial, TrialAudit, run_trial
from florist.common.settings.training import Model
from tests.support.serving import QuickModel, client_of, halves, service, table_of, train_pair

class Whole(QuickModel):
    def settings(self, role):
        more = {"audit.enabled": True, "agreement.training.checkpoint_every": 3}
        return super().settings(role) | more

def refuse(*_, **__):
    raise AssertionError("something was unpickled")

class Refused:
    def __init__(self, *_, **__):
        refuse()

def hook(event, arguments):
    if event == "pickle.find_class":
        refuse()

# The hook catches modules that imported these functions earlier.
pickle.load = pickle.loads = pickle._load = pickle._loads = refuse
pickle.Unpickler = pickle._Unpickler = Refused
sys.addaudithook(hook)

workspace = train_pair(Path(sys.argv[1]), Whole())        # align, train, checkpoints, self-audit
halves(workspace)                                         # load what was saved
rows = table_of(workspace, "passive").columns.slice(0, 5).to_pylist()
with service(workspace) as peer, client_of(workspace, peer.address) as client:
    assert len(client.predict(rows)) == 5
people = load_people(
    PeopleSettings(generated=Generated(people=600), split=HeldOut(test=0.2, validation=0.2))
)
trial = Trial(
    method=METHODS["default"], alpha=0.5, beta=0.4, batch_size=128, model=Model(hidden=[8, 8])
)
assert run_trial(people, trial, TrialAudit(samples=30)).figures  # a simulation
for unpickle in (pickle.loads, lambda data: __import__("_pickle").loads(data)):
    try:
        unpickle(b"cpathlib\\nPath\\n.")
    except AssertionError:
        continue
    raise SystemExit("this test would not have noticed")
print("nothing was unpickled")
"""


def test_a_complete_run_unpickles_nothing(tmp_path: Path) -> None:
    """Both parties run over TLS in a process where any use of pickle raises."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(tmp_path / "pair")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("nothing was unpickled\n")
