"""Configuration files: good ones load, bad ones name file, key and fix; pages stay up to date."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.cli.reference import page
from florist.cli.templates import party_config_text, yaml_value
from florist.common.core.errors import ConfigurationError
from florist.common.settings.addresses import split_address
from florist.common.settings.agreement import Agreement
from florist.common.settings.alignment import AlignmentSettings
from florist.common.settings.compute import ComputeSettings, EngineName
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.settings.formats import AVAZU, CRITEO
from florist.common.settings.keys import describe_keys
from florist.common.settings.loader import load_config, parse_config
from florist.common.settings.network import Tls
from florist.common.settings.party_config import PartyConfig
from florist.common.settings.timeouts import Timeouts

MINIMAL: dict[str, Any] = {
    "party": {"name": "clinic", "peer": "bank"},
    "network": {"address": "active.example:7000"},
    "data": {"train": {"path": "people.csv", "id_column": "id"}},
    "run_directory": "runs",
}


def with_value(dotted: str, value: object) -> dict[str, Any]:
    """MINIMAL, with one key changed or added."""
    *above, last = dotted.split(".")
    changed: dict[str, Any] = yaml.safe_load(yaml.safe_dump(MINIMAL))
    section = changed
    for part in above:
        section = section.setdefault(part, {})
    section[last] = value
    return changed


def parse(values: object) -> PartyConfig:
    return parse_config(yaml.safe_dump(values), folder=Path("/conf"), source="party.yml")


def problem(values: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(values)
    text = str(caught.value)
    assert text.startswith("party.yml: ")
    assert "party.yml" not in caught.value.for_peer
    return text.removeprefix("party.yml: ")


def problem_in_text(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_config(text, folder=Path("/conf"), source="party.yml")
    return str(caught.value)


# --- good files ---


def test_minimal_file_has_the_documented_defaults() -> None:
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


def test_relative_paths_start_from_the_files_folder(
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


def test_a_byte_order_mark_and_merged_sections_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "party.yml"
    text = yaml.safe_dump(MINIMAL) + "compute: &c {threads: 2}\nalignment: {<<: {dummies: 5}}\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_config(file).alignment.dummies == 5


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512 * 10**6), ("1.5 GB", 15 * 10**8), ("300MiB", 300 << 20), ("2GiB", 2 << 30)],
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert parse(with_value("alignment.memory_limit", text)).alignment.memory_bytes == size
    assert parse(with_value("training.table_memory", text)).training.table_bytes == size


def test_tables_may_be_kept_on_disk_altogether() -> None:
    assert parse(with_value("training.table_memory", "0MB")).training.table_bytes == 0


def test_is_frozen_and_keeps_the_number_of_dummies_out_of_its_repr() -> None:
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


# --- tables ---


def train(**changes: Any) -> Table:  # noqa: ANN401
    table = {"path": "people.csv", "id_column": "id", **changes}
    return parse(with_value("data.train", table)).data.train


@pytest.mark.parametrize(("name", "known"), [("criteo", CRITEO), ("avazu", AVAZU)])
def test_a_format_settles_all_but_the_path(name: str, known: Any) -> None:  # noqa: ANN401
    for settled in (
        {},
        {"label": None, "numeric": "auto", "categorical": "auto"},
        {"label": known.label, "delimiter": known.delimiter, "id_column": known.id_column},
        {"numeric": list(known.numeric), "categorical": list(known.categorical)},
    ):
        values = with_value("data.train", {"path": "people.csv", "format": name, **settled})
        table = parse(values).data.train
        assert {key: getattr(table, key) for key in known.settings()} == known.settings()
    some = {"path": "people.csv", "format": name, "numeric": [], "categorical": ["C21", "C14"]}
    table = parse(with_value("data.train", some)).data.train
    assert (table.numeric, table.categorical) == ((), ("C21", "C14"))


def test_criteo_with_ids_of_the_operators_own() -> None:
    table = train(format="criteo", id_column="user")
    assert (table.id_column, table.delimiter, table.label) == ("user", "\t", "label")


def test_features_by_name() -> None:
    table = train(label="y", numeric=["b", "a"], categorical=[])
    assert (table.numeric, table.categorical) == (("b", "a"), ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"numeric": "age"},
            "numeric: must be `auto` or a list of columns, such as [age, city], n",
        ),
        ({"numeric": None}, "numeric: must be `auto` or a list of columns, such as [age, city], n"),
        ({"numeric": {"a": 1}}, "numeric: must be `auto` or a list of columns"),
        ({"numeric": [7]}, "numeric: must list column names, not 7; put it in quotes"),
        ({"categorical": ["a", ""]}, "categorical: must list column names, not ''; put it in"),
        ({"numeric": ["a", "b", "a"]}, "numeric: lists 'a' twice; remove one"),
        (
            {"numeric": ["a"], "categorical": ["b", "a"]},
            "categorical: 'a' is also listed under numeric; keep one",
        ),
        ({"categorical": ["id"]}, "categorical: 'id' is the ID or label column; remove it"),
        ({"label": "y", "numeric": ["y"]}, "numeric: 'y' is the ID or label column; remove it"),
        ({"label": "id"}, "label: must differ from id_column, not 'id'"),
        ({"label": ""}, "label: must have at least 1 character"),
        ({"label": 5}, "label: must be text, not 5; put it in quotes"),
        ({"format": "xls"}, "format: must be one of `plain`, `criteo`, `avazu`, not 'xls'"),
        ({"format": ["criteo"]}, "format: must be one of `plain`, `criteo`, `avazu`, not a list"),
        (
            {"format": "criteo", "delimiter": ","},
            "delimiter: must in this format be '\\t', or left out, not ','",
        ),
        ({"format": "avazu"}, "id_column: must in this format be 'id', or left out, not 'person'"),
        ({"format": "criteo", "id_column": "C1"}, "id_column: must in this format be 'row_number'"),
        (
            {"format": "criteo", "label": "click"},
            "label: must in this format be 'label', or left o",
        ),
        (
            {"format": "criteo", "numeric": ["I1", "C1"]},
            "numeric: this format has no such column 'C1'; remove it",
        ),
        (
            {"format": "criteo", "categorical": ["I1"]},
            "categorical: this format has no such column 'I1'",
        ),
    ],
)
def test_tables_that_contradict_themselves(changes: dict[str, Any], expected: str) -> None:
    id_column = "person" if changes.get("format") == "avazu" else "id"
    table = {"path": "people.csv", "id_column": id_column, **changes}
    text = problem(with_value("data.train", table))
    assert text.startswith(f"data.train.{expected}")
    assert "\n" not in text


def test_the_test_table_is_that_of_training_in_another_file() -> None:
    values = with_value("data.test", {"path": "held_out.csv"})
    values["data"]["train"] |= {"delimiter": ";", "label": "y", "numeric": ["a"]}
    data = parse(values).data
    expected = data.train.model_copy(update={"path": Path("/conf/held_out.csv")})
    assert data.test_table == expected
    values["data"]["test"]["delimiter"] = "|"
    assert parse(values).data.test_table == expected.model_copy(update={"delimiter": "|"})


def test_the_test_table_may_have_another_format() -> None:
    values = with_value("data.test", {"path": "held_out.csv", "format": "plain"})
    values["data"]["train"] = {"path": "train.txt", "format": "criteo", "id_column": "user"}
    table = parse(values).data.test_table
    assert table is not None
    assert (table.format, table.delimiter, table.id_column) == ("plain", ",", "user")
    assert table.categorical == CRITEO.categorical
    values["data"]["test"] |= {"format": "criteo"}
    table = parse(values).data.test_table
    assert table is not None
    assert table.delimiter == "\t"


# --- files that cannot be read ---


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.yml: there is no such file; `florist"):
        load_config(tmp_path / "nothing.yml")
    with pytest.raises(ConfigurationError, match="is a folder"):
        load_config(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path / "a\0b")


def test_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "party.yml"
    file.write_bytes("party:\n  name: caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"party\.yml: line 2 is not UTF-8; save"):
        load_config(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("party: {name: a\nnetwork", "party.yml: line 2, column "),
        ("party:\n\tname: a", "party.yml: line 2, column 1: found character '\\t'"),
        ("a: 1\n--- \nb: 2", "party.yml: line 2, column 1: but found another document"),
        ("party: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: *unknown", "line 1, column 4: found undefined alias"),
        ("{[a]: 1}", "line 1, column 2: found unhashable key"),
        ("a: 1\nb: \x07", "party.yml: line 2: a control character"),
        ("a: 2026-02-30", "a value cannot be read"),
        ("[" * 1500, "nested too deeply"),
        ("", "party.yml: is empty; it must have `party`, `network`, `data`"),
        ("# only a comment", "is empty"),
        ("- party", "party.yml: holds no keys at its top level"),
        ("hello", "holds no keys at its top level"),
    ],
)
def test_not_a_yaml_mapping(text: str, expected: str) -> None:
    assert expected in problem_in_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("party: 1\nnetwork: 2\nparty: 3\n", "line 3, column 1: the key 'party' is there twice"),
        ("party:\n  name: a\n  'name': b\n", "line 3, column 3: the key 'name' is there twice"),
        ("a: {b: 1, b: 2}", "line 1, column 11: the key 'b' is there twice"),
    ],
)
def test_a_key_given_twice_is_refused(text: str, expected: str) -> None:
    assert expected in problem_in_text(text)


# --- keys and values ---


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        ("network.adress", "x", "network.adress: unknown key; did you mean `address`?"),
        ("agreement.grup", "x25519", "agreement.grup: unknown key; did you mean `group`?"),
        ("threads", 4, "threads: unknown key; it belongs at `compute.threads`"),
        (
            "compute.xyz",
            4,
            "compute.xyz: unknown key; known here: `engine`, `threads`, `executor`, `ray_address`",
        ),
        ("compute.1", 4, "compute.1: unknown key; known here"),
        ("compute.a\x1bb", 4, r"compute.'a\x1bb': unknown key"),
        ("party.name", "Clinic", "party.name: must be 1 to 63 lower-case letters, digits and hyph"),
        ("party.name", "-a", "party.name: must be 1 to 63"),
        ("party.name", "a" * 64, "party.name: must be 1 to 63"),
        ("party.name", "", "party.name: must be 1 to 63"),
        ("party.name", "a\n", "party.name: must be 1 to 63"),
        ("party.name", 7, "party.name: must be text, not 7; put it in quotes"),
        ("party.peer", "clinic", "party.peer: must differ from party.name, not 'clinic'"),
        ("party", None, "party: is empty; give it `name`, `peer`"),
        ("party", "clinic", "party: has no keys; give it `name`, `peer`"),
        ("network.address", "localhost", "network.address: must be host:port"),
        ("network.tls", {}, "network.tls.authority: missing; add it. File (PEM)"),
        ("data.train.path", 5, "data.train.path: must be text, not 5"),
        ("data.train.path", None, "data.train.path: must be text, not empty"),
        ("data.train.path", ["a"], "data.train.path: must be text, not a list"),
        ("data.train.id_column", "", "data.train.id_column: must have at least 1 character, not"),
        ("data.train.id_column", True, "data.train.id_column: must be text, not True; put it in"),
        ("data.train.delimiter", ";;", "data.train.delimiter: must be one ASCII character"),
        ("data.train.delimiter", '"', "data.train.delimiter: must be one ASCII character"),
        ("data.train.delimiter", "\u00a7", "data.train.delimiter: must be one ASCII character"),
        ("data.test", {}, "data.test.path: missing; add it. File with the same columns as the tra"),
        (
            "data.test",
            {"path": "a", "label": "y"},
            "data.test.label: unknown key; it belongs at `d",
        ),
        ("data.test", {"path": "a", "format": "x"}, "must be one of `same`, `plain`, `criteo`, `a"),
        ("data.test", {"path": "a", "delimiter": ";;"}, "data.test.delimiter: must be one ASCII c"),
        (
            "data.test",
            {"path": "a", "format": "criteo", "delimiter": ";"},
            "data.test.delimiter: must in this format be '\\t', or left out, not ';'",
        ),
        ("data.preprocessing.min_count", 0, "min_count: must be greater than or equal to 1, not"),
        ("data.preprocessing.scaling", "sqrt", "must be one of `linear`, `log`, not 'sqrt'"),
        ("alignment.dummies", -1, "alignment.dummies: must be greater than or equal to 0, not -1"),
        ("alignment.dummies", 1.5, "alignment.dummies: must be a whole number without quotes"),
        ("alignment.dummies", "5", "alignment.dummies: must be a whole number without quotes"),
        (
            "alignment.memory_limit",
            "much",
            "alignment.memory_limit: must be a number with its unit",
        ),
        ("alignment.memory_limit", "512", "alignment.memory_limit: must be a number with its unit"),
        ("training.table_memory", "0", "training.table_memory: must be a number with its unit"),
        ("alignment.memory_limit", "100MB", "alignment.memory_limit: must be 256MB at least"),
        ("alignment.memory_limit", 512, "alignment.memory_limit: must be text, not 512"),
        ("alignment.dummies", True, "alignment.dummies: must be a whole number without quotes"),
        (
            "compute.engine",
            "gpu",
            "must be one of `auto`, `ifma`, `avx2`, `cryptography`, `gmpy2`, not 'gpu'",
        ),
        ("timeouts.connect", 0, "timeouts.connect: must be greater than 0, not 0"),
        ("timeouts.connect", "1e3", "timeouts.connect: must be a number without quotes, not '1e3'"),
        ("timeouts.connect", float("inf"), "timeouts.connect: must be a finite number"),
        ("timeouts.connect", float("nan"), "timeouts.connect: must be a finite number"),
        ("timeouts.silence", 2.9, "timeouts.silence: must be greater than or equal to 3, not 2.9"),
        ("timeouts.silence", 14, "timeouts.silence: must be less than or equal to 13, not 14"),
        ("timeouts.stall", -5, "timeouts.stall: must be greater than 0"),
        (
            "agreement.id_normalisation",
            "lower",
            "agreement.id_normalisation: must be one of `none`, `strip`, `strip-lower`, not",
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_with_the_fix(
    dotted: str, value: object, expected: str
) -> None:
    assert expected in problem(with_value(dotted, value))


def test_a_missing_key_says_what_it_is_for() -> None:
    values = {**MINIMAL, "party": {"name": "clinic"}}
    assert problem(values).startswith("party.peer: missing; add it. The peer's name")


def test_a_key_that_is_no_text() -> None:
    values: dict[Any, Any] = {**MINIMAL, True: 1}
    assert "put it in quotes" in problem(values)


def test_all_problems_at_once_one_per_line() -> None:
    values = with_value("compute.engine", "gpu")
    values["timeouts"] = {"silence": 99}
    values["colour"] = "red"
    del values["run_directory"]
    first, *lines = problem(values).split("\n")
    assert first == "4 problems:"
    assert [line.split(":")[0] for line in lines] == [
        "  run_directory",
        "  compute.engine",
        "  timeouts.silence",
        "  colour",
    ]


def test_a_pasted_private_key_is_not_repeated() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n"
    tls = {"authority": "ca.pem", "certificate": "cert.pem", "key": pem}
    text = problem(with_value("network.tls", tls))
    assert text.startswith("network.tls.key: must be a path on one line")
    assert "MC4C" not in text
    assert "\n" not in text


def test_long_values_are_cut() -> None:
    assert len(problem(with_value("compute.engine", "x" * 10_000))) < 300


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("localhost:7000", "localhost", 7000),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("active_party:65535", "active_party", 65535),
        ("a.example.:80", "a.example.", 80),
        ("[::1]:7000", "::1", 7000),
        ("[fe80::1%eth0]:7000", "fe80::1%eth0", 7000),
    ],
)
def test_good_addresses(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert parse(with_value("network.address", address)).network.address == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":7000",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:+80",
        "host:80 ",
        "host:\u0663",
        "::1:7000",
        "[::1]",
        "[::1:7000",
        "[host]:7000",
        "[127.0.0.1]:7000",
        "1.2.3:7000",
        "1.2.3.256:7000",
        "a b:7000",
        "a..b:7000",
        "-a:7000",
        "http://host:7000",
        "user@host:7000",
        "a" * 64 + ":7000",
        ".".join(["a" * 60] * 5) + ":7000",
        "h\u00f4te:7000",
    ],
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="must "):
        split_address(address)
    assert problem(with_value("network.address", address)).startswith("network.address: must ")


# --- generated pages and files ---


def test_every_key_is_described_in_a_sentence_with_its_choices() -> None:
    keys = list(describe_keys(PartyConfig))
    assert len({key.dotted for key in keys}) == len(keys) > 20
    for key in keys:
        assert key.meaning.endswith("."), key.dotted
        assert all(choice in key.meaning for choice in key.choices), key.dotted


def test_the_committed_reference_page_is_up_to_date() -> None:
    committed = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert committed.read_text(encoding="utf-8") == page(), (
        "run: python -m florist.cli.reference > docs/reference/configuration.md"
    )


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
def test_a_generated_file_has_every_key_at_its_default(tmp_path: Path, tls: Tls | None) -> None:
    file = tmp_path / "active.yml"
    file.write_text(template(tls=tls), encoding="utf-8")
    config = load_config(file)
    network = {"address": "[::1]:7000", "tls": tls and tls.model_dump()}
    assert config == PartyConfig.model_validate(
        {**MINIMAL, "network": network}, context={"folder": tmp_path}
    )
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    left_out = {("data", "test"), ("data", "evaluation"), *([] if tls else [("network", "tls")])}
    for key in describe_keys(PartyConfig):
        if key.path[:2] in left_out:
            continue
        value = written
        for part in key.path:
            value = value[part]
        if not key.is_section and not key.required:
            assert value == key.default


def test_a_generated_file_explains_every_key() -> None:
    lines = template(tls=TLS).splitlines()
    for before, line in pairwise(lines):
        if line and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line
    assert max(map(len, lines)) <= 100
    assert "florist-party --role active --config FILE" in lines[3]


def test_changes_to_a_generated_file(tmp_path: Path) -> None:
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


@settings(deadline=None, max_examples=30)
@given(texts, one_line)
def test_generated_files_keep_any_text(id_column: str, data_path: str) -> None:
    text = template(id_column=id_column, data_path=Path(data_path))
    table = parse_config(text, folder=Path(), source="new").data.train
    assert (table.id_column, table.path) == (id_column, Path(data_path))


@given(st.text() | st.integers() | st.booleans() | st.floats(-1e9, 1e9) | st.none())
def test_yaml_values_are_one_line_and_read_back(value: object) -> None:
    text = yaml_value(value)
    assert "\n" not in text
    assert yaml.safe_load(text) == value
