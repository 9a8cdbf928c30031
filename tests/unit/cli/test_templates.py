"""Configuration files that `florist init` writes: complete, commented and valid."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.cli.templates import party_config_text, yaml_value
from florist.common.core.errors import ConfigurationError
from florist.common.settings.agreement import AggregatePrivacy
from florist.common.settings.keys import describe_keys
from florist.common.settings.loader import load_config, parse_config
from florist.common.settings.network import Tls
from florist.common.settings.party_config import PartyConfig
from tests.support.settings import MINIMAL

texts = st.text(min_size=1, max_size=12).filter(lambda text: "\ufeff" not in text)
one_line = texts.filter(lambda text: min(text) >= " ")


TLS = Tls(authority=Path("tls/ca.pem"), certificate=Path("tls/c.pem"), key=Path("tls/k.pem"))


def template(**changed: Any) -> str:  # noqa: ANN401
    arguments: dict[str, Any] = {
        "role": "active",
        "name": "clinic",
        "peer": "bank",
        "address": "[::1]:7000",
        "data_path": Path("people.csv"),
        "id_column": "id",
        "run_directory": Path("runs"),
        **changed,
    }
    return party_config_text(**arguments)


@pytest.mark.parametrize("tls", [None, TLS])
def test_every_key_is_written_with_its_default(tmp_path: Path, tls: Tls | None) -> None:
    file = tmp_path / "active.yml"
    file.write_text(template(tls=tls), encoding="utf-8")
    config = load_config(file)
    network = {"address": "[::1]:7000", "tls": tls and tls.model_dump()}
    assert config == PartyConfig.model_validate(
        {**MINIMAL, "role": "active", "network": network}, context={"folder": tmp_path}
    )
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    left_out = {("data", "test"), ("data", "evaluation"), *([] if tls else [("network", "tls")])}
    without_keys = ("agreement", "training", "aggregate", "privacy")
    for key in describe_keys(PartyConfig):
        if key.path[:2] in left_out or key.path[:-1] == without_keys:
            continue
        value = written
        for part in key.path:
            value = value[part]
        if key.path == ("role",):
            assert value == "active"
        elif key.path == without_keys or not (key.is_section or key.required):
            assert value == (list(key.default) if isinstance(key.default, tuple) else key.default)


def test_a_section_that_is_a_word_by_default_can_have_keys(tmp_path: Path) -> None:
    file = tmp_path / "active.yml"
    name = "agreement.training.aggregate.privacy"
    file.write_text(template(changes={f"{name}.epsilon": 2.0}), encoding="utf-8")
    privacy = load_config(file).agreement.training.aggregate.privacy
    assert isinstance(privacy, AggregatePrivacy)
    assert privacy == AggregatePrivacy(epsilon=2.0)
    file.write_text(template(changes={name: None}), encoding="utf-8")
    assert load_config(file).agreement.training.aggregate.privacy is None


def test_every_key_has_a_comment() -> None:
    lines = template(tls=TLS).splitlines()
    for before, line in pairwise(lines):
        if line and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line
    assert max(map(len, lines)) <= 100
    assert "florist-party --config FILE" in lines[3]


def test_changed_keys(tmp_path: Path) -> None:
    changes = {
        "compute.threads": 2,
        "agreement.group": "modp2048",
        "data.train.delimiter": "\t",
        "data.train.numeric": ["age", "null"],
        "data.test.path": "held_out.csv",
    }
    config = parse_config(template(changes=changes), folder=tmp_path, source="new")
    assert config.compute.threads == 2
    assert config.agreement.group == "modp2048"
    assert config.data.train.delimiter == "\t"
    assert config.data.train.numeric == ("age", "null")
    assert config.data.test is not None
    assert config.data.test.path == tmp_path / "held_out.csv"
    with pytest.raises(ConfigurationError, match=r"compute\.thread: unknown key"):
        template(changes={"compute.thread": 2})
    with pytest.raises(ConfigurationError, match=r"the new configuration: party\.name: must be"):
        template(name="Clinic")


def test_an_optional_section_can_be_null(tmp_path: Path) -> None:
    changes = {"agreement.union.privacy": None, "privacy.budget": None}
    config = parse_config(template(changes=changes), folder=tmp_path, source="new")
    assert config.agreement.union.privacy is None
    assert config.privacy.budget is None
    with pytest.raises(ConfigurationError, match=r"agreement\.union: unknown key"):
        template(changes={"agreement.union": None})


@settings(deadline=None, max_examples=30)
@given(texts, one_line)
def test_any_text_is_preserved(id_column: str, data_path: str) -> None:
    text = template(id_column=id_column, data_path=Path(data_path))
    table = parse_config(text, folder=Path(), source="new").data.train
    assert (table.id_column, table.path) == (id_column, Path(data_path))


@given(st.text() | st.integers() | st.booleans() | st.floats(-1e9, 1e9) | st.none())
def test_yaml_values_are_on_one_line_and_round_trip(value: object) -> None:
    text = yaml_value(value)
    assert "\n" not in text
    assert yaml.safe_load(text) == value
