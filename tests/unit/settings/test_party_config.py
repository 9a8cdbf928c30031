"""Valid configuration files: defaults, paths, sizes, and writing them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.settings.agreement import Agreement
from florist.common.settings.alignment import AlignmentSettings
from florist.common.settings.compute import ComputeSettings, EngineName
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.settings.loader import load_config, parse_config
from florist.common.settings.timeouts import Timeouts
from tests.support.settings import MINIMAL, parse, with_value


def test_defaults_of_a_minimal_file() -> None:
    config = parse(MINIMAL)
    assert config.network.tls is None
    assert config.data.train == Table(
        path=Path("/conf/people.csv"),
        format="plain",
        id_column="id",
        delimiter=",",
        label=None,
        numeric="auto",
        categorical="auto",
    )
    assert config.data.test is None
    assert config.data.test_table is None
    assert config.data.preprocessing == PreprocessingSettings(min_count=1, scaling="linear")
    assert config.alignment == AlignmentSettings(dummies=0)
    assert config.compute == ComputeSettings(engine="auto", threads=0)
    assert config.timeouts == Timeouts(connect=600, silence=10, stall=1800)
    assert config.agreement == Agreement(group="x25519", id_normalisation="strip")


def test_relative_paths_start_from_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "party.yml"
    tls = {"authority": "ca.pem", "certificate": "../cert.pem", "key": "/etc/key.pem"}
    file.write_text(yaml.safe_dump(with_value("network.tls", tls)))
    monkeypatch.chdir(tmp_path)
    for name in (file, Path("conf/party.yml")):
        config = load_config(name)
        assert config.data.train.path == tmp_path / "conf" / "people.csv"
        assert config.run_directory == tmp_path / "conf" / "runs"
        assert config.network.tls is not None
        assert config.network.tls.authority == tmp_path / "conf" / "ca.pem"
        assert config.network.tls.certificate == tmp_path / "conf" / ".." / "cert.pem"
        assert config.network.tls.key == Path("/etc/key.pem")


def test_byte_order_mark_and_yaml_merge_keys(tmp_path: Path) -> None:
    file = tmp_path / "party.yml"
    text = yaml.safe_dump(MINIMAL) + "compute: &c {threads: 2}\nalignment: {<<: {dummies: 5}}\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_config(file).alignment.dummies == 5


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512 * 10**6), ("1.5 GB", 15 * 10**8), ("300MiB", 300 << 20), ("2GiB", 2 << 30)],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert parse(with_value("alignment.memory_limit", text)).alignment.memory_bytes == size
    assert parse(with_value("training.table_memory", text)).training.table_bytes == size


def test_zero_table_memory() -> None:
    assert parse(with_value("training.table_memory", "0MB")).training.table_bytes == 0


def test_is_frozen_and_hides_the_number_of_dummies() -> None:
    config = parse(with_value("alignment.dummies", 98765))
    assert "98765" not in repr(config)
    with pytest.raises(ValueError, match="frozen"):
        config.alignment.dummies = 1


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
texts = st.text(min_size=1, max_size=12).filter(lambda text: "\ufeff" not in text)
one_line = texts.filter(lambda text: min(text) >= " ")
marks = st.sampled_from([",", ";", "\t"])
plain_tables = st.builds(
    lambda path, delimiter, columns, label, cut: {
        "path": path,
        "delimiter": delimiter,
        "id_column": columns[0],
        **({"label": columns[1]} if label else {}),
        "numeric": columns[2:cut],
        "categorical": columns[cut:],
    },
    one_line,
    marks,
    st.lists(texts, min_size=2, max_size=6, unique=True),
    st.booleans(),
    st.integers(2, 6),
)
known_tables = st.fixed_dictionaries(
    {"path": one_line, "format": st.sampled_from(["criteo", "avazu"])},
    optional={"categorical": st.just(["C1"]), "label": st.none(), "numeric": st.just("auto")},
)
tables = st.fixed_dictionaries({"path": one_line, "id_column": texts}) | plain_tables | known_tables
configs = st.fixed_dictionaries(
    {
        "party": st.tuples(labels, labels)
        .filter(lambda pair: pair[0] != pair[1])
        .map(lambda pair: {"name": pair[0], "peer": pair[1]}),
        "network": st.builds(
            lambda host, port: {"address": f"{host}:{port}"},
            st.sampled_from(["localhost", "10.0.0.7", "[::1]", "a.b-c.example"]),
            st.integers(1, 65535),
        ),
        "data": st.fixed_dictionaries(
            {"train": tables},
            optional={
                "test": st.fixed_dictionaries({"path": one_line}, optional={"delimiter": marks}),
                "preprocessing": st.fixed_dictionaries(
                    {
                        "min_count": st.integers(1, 100),
                        "scaling": st.sampled_from(["linear", "log"]),
                    }
                ),
            },
        ),
        "run_directory": one_line,
    },
    optional={
        "alignment": st.fixed_dictionaries({"dummies": st.integers(0, 10**9)}),
        "compute": st.fixed_dictionaries(
            {"engine": st.sampled_from(get_args(EngineName)), "threads": st.integers(0, 512)}
        ),
        "timeouts": st.fixed_dictionaries({"silence": st.floats(3, 13)}),
        "agreement": st.fixed_dictionaries({"group": st.sampled_from(["x25519", "modp3072"])}),
    },
)


@settings(deadline=None)
@given(configs)
def test_round_trip(values: dict[str, Any]) -> None:
    config = parse(values)
    written = yaml.safe_dump(config.model_dump(mode="json"))
    assert parse_config(written, folder=Path("/elsewhere"), source="again") == config
    assert config.data.train.path == Path("/conf") / values["data"]["train"]["path"]
