"""Reading IDs: types, normalisation, and files that are refused."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import struct
from collections import Counter
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import id_check, text_files
from florist.common.data.id_check import fingerprint
from florist.common.data.table_ids import WHITE_SPACE
from florist.common.settings.agreement import Normalisation
from florist.common.storage import id_column as ids_module
from florist.common.storage.id_column import IdColumn, quick_digests
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from collections.abc import Callable

NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def normalised(text: str, normalisation: Normalisation) -> str:
    """The slow, obvious version."""
    match normalisation:
        case "none":
            return text
        case "strip":
            return text.strip(WHITE_SPACE)
        case "strip-lower":
            return text.strip(WHITE_SPACE).translate(ASCII_LOWER)


def write(folder: Path, content: bytes | str, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(folder: Path, values: Any, kind: pa.DataType | None = None) -> Path:  # noqa: ANN401
    path = folder / "people.parquet"
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    parquet.write_table(pa.table({"age": [1] * len(column), "id": column}), path)
    return path


def write_csv(folder: Path, ids: list[str]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["id", "age"], *([each, "1"] for each in ids)])
    return write(folder, text.getvalue())


def read(path: Path, normalisation: Normalisation = "strip", **options: Any) -> list[str]:  # noqa: ANN401
    return [each.decode() for each in read_ids(path, "id", normalisation, **options)]


def refusal(path: Path, id_column: str = "id", **options: Any) -> str:  # noqa: ANN401
    """The error message, which names the file, and of which the peer learns nothing."""
    with pytest.raises(ConfigurationError) as caught:
        read_ids(path, id_column, "strip", **options)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.isprintable()
    assert str(path) not in caught.value.for_peer
    return text.removeprefix(str(path)).lstrip(":, ")


# --- CSV ---


def test_csv_values_are_read_as_exact_text(tmp_path: Path) -> None:
    values = ["007", "7", "7.0", "1e3", "NA", "null", "true", "2026-01-01", "0x1", "-0", "a\0b"]
    path = write(tmp_path, "age,id\n" + "".join(f"1,{value}\n" for value in values))
    assert read(path) == values


@pytest.mark.parametrize(
    "content",
    [
        b"id,age\na,1\nb,2\n",
        b"id,age\r\na,1\r\nb,2\r\n",
        b"id,age\na,1\nb,2",
        b"\xef\xbb\xbfid,age\na,1\nb,2\n",
        b"id,age\na,1\n\nb,2\n\n",
        b'"id","age"\n"a","1"\n"b","x,\n""y"\n',
        b"age,id\n1,a\n2,b\n",
        b"id\na\nb\n",
        b"id,name\na,caf\xe9\nb,x\n",
    ],
)
def test_csv_dialects(tmp_path: Path, content: bytes) -> None:
    assert read(write(tmp_path, content)) == ["a", "b"]
    assert read(write(tmp_path, gzip.compress(content), "people.csv.gz")) == ["a", "b"]
    assert read(write(tmp_path, content, "PEOPLE.CSV")) == ["a", "b"]
    assert read(write(tmp_path, gzip.compress(content), "people.gz")) == ["a", "b"]


def test_quoted_delimiters_quotes_and_line_breaks_are_part_of_the_id(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'id,age\n"a,""b\nc",1\n')) == ['a,"b\nc']


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_another_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, f"id{delimiter}age\na{delimiter}1,5\n")
    assert read(path, delimiter=delimiter) == ["a"]
    assert "is `delimiter` correct?" in refusal(
        write(tmp_path, f"id{delimiter}age\na{delimiter}1\n")
    )


def test_rows_of_several_blocks_stay_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "_BLOCK_MIB", 1)
    expected = [f"person-{number}" for number in range(100_000)]
    content = "note,id\n" + "".join(f'"some\nwords, ""quoted""",{each}\n' for each in expected)
    assert len(content) > 3 << 20
    assert read(write(tmp_path, content)) == expected
    parts = gzip.compress(content[:1000].encode()) + gzip.compress(content[1000:].encode())
    assert read(write(tmp_path, parts, "people.csv.gz")) == expected


# --- Parquet ---


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.string(), ["007", " 7 ", "NA"], ["007", "7", "NA"]),
        (pa.large_string(), ["a", "\u00e9"], ["a", "\u00e9"]),
        (pa.string_view(), ["a", "b"], ["a", "b"]),
        (pa.dictionary(pa.int32(), pa.string()), ["b", "a"], ["b", "a"]),
        (pa.dictionary(pa.int8(), pa.large_string()), ["b", "a"], ["b", "a"]),
        (pa.binary(), [b"a", "\u00e9".encode()], ["a", "\u00e9"]),
        (pa.large_binary(), [b"a", b"b "], ["a", "b"]),
        (pa.int64(), [7, -(2**63)], ["7", "-9223372036854775808"]),
        (pa.uint64(), [0, 2**64 - 1], ["0", "18446744073709551615"]),
        (pa.int8(), [1, -1], ["1", "-1"]),
    ],
)
def test_parquet_types(
    tmp_path: Path, kind: pa.DataType, values: list[object], expected: list[str]
) -> None:
    assert read(write_parquet(tmp_path, values, kind)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            pa.array([1.0, 2.0]),
            "column 'id': has type double, which has no exact text form; store",
        ),
        (pa.array([1.0], pa.float32()), "has type float, which has no exact text form"),
        (pa.array([True]), "has type bool; store the IDs as strings"),
        (pa.array([Decimal("1.5")]), "has type decimal128(2, 1); store the IDs as strings"),
        (pa.array([0], pa.timestamp("s")), "store the IDs as strings"),
        (pa.array([b"0123456789abcdef"], pa.binary(16)), "store the IDs as strings"),
        (pa.array([["a"]]), "store the IDs as strings"),
        (pa.array([{"a": "b"}]), "store the IDs as strings"),
        (pa.array([None], pa.null()), "store the IDs as strings"),
        (pa.array([b"\xff"]), "contains values that are not UTF-8"),
    ],
)
def test_parquet_types_that_are_refused(tmp_path: Path, values: pa.Array, expected: str) -> None:
    assert expected in refusal(write_parquet(tmp_path, values))


def test_parquet_strings_that_are_not_utf8(tmp_path: Path) -> None:
    offsets = np.array([0, 1, 2], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"\xffa")]
    broken = pa.Array.from_buffers(pa.string(), 2, buffers)
    assert "contains values that are not UTF-8" in refusal(write_parquet(tmp_path, broken))


def test_a_parquet_column_with_a_dot_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"a": [{"b": "inner"}], "a.b": ["outer"]}), path)
    assert list(read_ids(path, "a.b", "strip")) == [b"outer"]


# --- normalisation ---


def test_white_space_is_a_fixed_set_of_white_space() -> None:
    assert len(set(WHITE_SPACE)) == 29
    assert all(character.isspace() for character in WHITE_SPACE)


def test_normalisation_examples(tmp_path: Path) -> None:
    path = write(tmp_path, "id\n\u00a0 \u00c9 Ab\u3000\n")
    assert read(path, "none") == ["\u00a0 \u00c9 Ab\u3000"]
    assert read(path, "strip") == ["\u00c9 Ab"]
    assert read(path, "strip-lower") == ["\u00c9 ab"]


def test_no_unicode_normal_form_and_no_zero_width_stripping(tmp_path: Path) -> None:
    values = ["\u00e9", "e\u0301", "\u200ba", "a", "\u0130", "\u212a"]
    assert read(write_csv(tmp_path, values), "strip-lower") == values


characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(WHITE_SPACE + "ABYZabyz")
id_lists = st.lists(st.text(characters, max_size=12), min_size=1, max_size=8)


@settings(deadline=None)
@given(id_lists, st.sampled_from(NORMALISATIONS), st.sampled_from([write_csv, write_parquet]))
def test_any_text_is_read_normalised_and_checked_like_the_slow_version(
    values: list[str], normalisation: Normalisation, write_ids: Callable[[Path, list[str]], Path]
) -> None:
    expected = [normalised(value, normalisation) for value in values]
    with TemporaryDirectory() as folder:
        path = write_ids(Path(folder), values)
        if all(expected) and len(set(expected)) == len(expected):
            assert read(path, normalisation) == expected
            return
        with pytest.raises(ConfigurationError) as caught:
            read_ids(path, "id", normalisation)
    if empty := expected.count(""):
        assert f"missing or empty IDs: {empty} of {len(values)}," in str(caught.value)
    else:
        repeated = {value: count for value, count in Counter(expected).items() if count > 1}
        start = f"more than once: {len(repeated)}, in {sum(repeated.values())} rows"
        assert start in str(caught.value)
        assert ", ".join(map(repr, list(repeated)[:5])) in caught.value.for_owner


# --- empty and repeated IDs ---


def test_empty_ids(tmp_path: Path) -> None:
    path = write(tmp_path, 'id,age\na,1\n  ,2\n,3\n"",4\n')
    assert refusal(path) == (
        "column 'id' (normalisation `strip`): missing or empty IDs: 3 of 4, the first in row 2 "
        "after the header; add the IDs or remove the rows"
    )


def test_nulls_in_parquet(tmp_path: Path) -> None:
    assert "or empty IDs: 2 of 4," in refusal(write_parquet(tmp_path, ["a", None, "b", ""]))
    assert "or empty IDs: 1 of 2," in refusal(write_parquet(tmp_path, [1, None], pa.int64()))
    assert "or empty IDs: 2 of 2," in refusal(write_parquet(tmp_path, [None] * 2, pa.string()))


def test_repeated_ids_after_normalisation(tmp_path: Path) -> None:
    path = write(tmp_path, "id\na\nb\n a\nc\nb \n\u3000b\n")
    assert refusal(path) == (
        "column 'id' (normalisation `strip`): IDs that occur more than once: 2, in 5 rows; keep "
        "one row per ID"
    )
    assert read(path, "none") == ["a", "b", " a", "c", "b ", "\u3000b"]


def test_repeated_ids_are_quoted_safely_and_briefly(tmp_path: Path) -> None:
    odd = ["\x1b[2J\u202eevil", "x" * 5000, *(f"id-{number}" for number in range(50))]
    path = write_csv(tmp_path, odd * 2)
    with pytest.raises(ConfigurationError) as caught:
        read_ids(path, "id", "strip")
    text = caught.value.for_owner.removeprefix(str(path))
    assert "IDs that occur more than once: 52, in 104 rows" in text
    assert r"'\x1b[2J\u202eevil', 'xxxx" in text
    assert text.endswith("'id-2' and 47 more)")
    assert len(text) < 300
    assert text.isprintable()
    assert not any(shown in caught.value.reason for shown in ("evil", "xxxx", "id-"))


def test_different_ids_with_equal_digests_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(ids: IdColumn) -> Any:  # noqa: ANN401
        return np.zeros(len(ids), dtype=np.uint64)

    monkeypatch.setattr(id_check, "quick_digests", same)
    assert read(write(tmp_path, "id\na\nb\nc\n")) == ["a", "b", "c"]
    assert "more than once: 1, in 2 rows" in refusal(write(tmp_path, "id\na\nb\na\n"))


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 7))
def test_equal_ids_have_equal_digests_at_any_position(values: list[bytes], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_module, "_DIGEST_ROWS", chunk)
        digests = quick_digests(IdColumn.from_bytes(values))
    alone = [int(quick_digests(IdColumn.from_bytes([value]))[0]) for value in values]
    assert digests.tolist() == alone
    assert len(set(alone)) == len(set(values))


def test_ids_that_differ_in_one_byte_have_different_digests() -> None:
    base = b"person-0000000000000042"
    close = [
        base[:i] + bytes([base[i] ^ bit]) + base[i + 1 :] for i in range(23) for bit in (1, 128)
    ]
    values = [
        base,
        *close,
        *(base + b"\0" * i for i in range(1, 20)),
        *(b"\0" * i for i in range(9)),
    ]
    assert len(set(quick_digests(IdColumn.from_bytes(values)).tolist())) == len(values)


# --- files that cannot be used ---


def test_a_missing_file_a_device_and_an_unknown_format(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.csv").startswith("no such file or folder; correct `path`")
    assert refusal(write(tmp_path, "id\na\n") / "inside.csv").startswith("cannot be read: ")
    assert refusal(Path("/dev/null")).startswith("is not a regular file; specify a file")
    assert "must end in .csv, .csv.gz or .parquet" in refusal(write(tmp_path, "id\na\n", "a.xlsx"))
    assert "must end in .csv" in refusal(write(tmp_path, "id\na\n", "people"))


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz", "people.parquet"])
def test_zero_bytes(tmp_path: Path, name: str) -> None:
    assert refusal(write(tmp_path, b"", name)).startswith("is empty (0 bytes)")


@pytest.mark.parametrize("content", [b"id,age\n", b"id,age", b"\n", b"\xef\xbb\xbf", b"id,age\n\n"])
def test_no_rows(tmp_path: Path, content: bytes) -> None:
    assert refusal(write(tmp_path, content)).startswith("has no rows")
    path = write(tmp_path, gzip.compress(content), "people.csv.gz")
    assert refusal(path).startswith("has no rows")


def test_no_rows_in_parquet(tmp_path: Path) -> None:
    assert refusal(write_parquet(tmp_path, [], pa.string())).startswith("has no rows")


def test_a_missing_column_error_lists_the_existing_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "user_id,age,\x1b[2J\n1,2,3\n")
    expected = r"has no column 'userid'; did you mean 'user_id'? it has 'user_id', 'age', '\x1b[2J'"
    assert refusal(path, "userid") == expected
    wide = write(
        tmp_path, ",".join(f"c{number}" for number in range(30)) + "\n" + ",".join("1" * 30)
    )
    assert refusal(wide, "xyz").endswith("'c19' and 10 more")
    table = write_parquet(tmp_path, ["a"])
    assert refusal(table, "ID") == "has no column 'ID'; it has 'age', 'id'"


def test_a_repeated_column_name(tmp_path: Path) -> None:
    assert "2 columns are named 'id'" in refusal(write(tmp_path, "id,id\n1,2\n"))
    path = tmp_path / "people.parquet"
    columns = [pa.array(["a"]), pa.array(["b"])]
    parquet.write_table(pa.Table.from_arrays(columns, names=["id", "id"]), path)
    assert "2 columns are named 'id'" in refusal(path)


def test_wrong_encodings(tmp_path: Path) -> None:
    row = refusal(write(tmp_path, "id,age\na,1\ncaf\u00e9,2\n".encode("latin-1")))
    assert row.startswith("row 3 (the header is row 1) is not UTF-8; save the file")
    header = refusal(write(tmp_path, "id,\u00e2ge\na,1\n".encode("latin-1")))
    assert header.startswith("the header is not UTF-8")
    assert "the file is not UTF-8" in refusal(write(tmp_path, "id,age\na,1\n".encode("utf-16")))


def test_errors_about_ragged_rows_name_the_row_but_not_its_values(tmp_path: Path) -> None:
    long = write(tmp_path, "id,age\na,1\nsecret,2,3\nb,4\n")
    assert refusal(long).startswith(
        "row 3 (the header is row 1) has 3 values but the header has 2; put double"
    )
    assert "secret" not in refusal(long)
    short = "id,age\n" + "".join(f"person-{number},1\n" for number in range(300_000)) + "b\n"
    assert refusal(write(tmp_path, short)).startswith("row 300,002 (the header is row 1) has 1 val")


def test_an_unclosed_quote(tmp_path: Path) -> None:
    assert "double quotes" in refusal(write(tmp_path, 'id,age\n"a,1\nb,2\n'))
    path = write(tmp_path, 'id,age\n"a,1\n' + "b,2\n" * (3 << 20))
    assert "longer than 4 MiB; check for an unclosed double quote" in refusal(path)


def test_broken_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(b"id,age\n" + b"".join(b"%d,1\n" % number for number in range(9999)))
    for broken in (b"id,age\n1,2\n", packed[:-4], packed[: len(packed) // 2], packed + b"rest"):
        assert "cannot be read: " in refusal(write(tmp_path, broken, "people.csv.gz"))


def test_not_a_parquet_file(tmp_path: Path) -> None:
    for content in (b"PAR1", b"id,age\n1,2\n" * 9, b"PAR1" + b"\xff" * 99 + b"PAR1"):
        assert refusal(write(tmp_path, content, "people.parquet")).startswith("cannot be read: ")
    good = write_parquet(tmp_path, [f"person-{number}" for number in range(1000)]).read_bytes()
    damaged = good[:20] + b"\xff" * 400 + good[420:]
    assert refusal(write(tmp_path, damaged, "people.parquet")).startswith("cannot be read: ")


# --- fingerprint ---


def test_fingerprint_is_the_same_in_every_release() -> None:
    lengths = hashlib.sha256(struct.pack("<qq", 1, 2)).digest()
    both = lengths + hashlib.sha256(b"abc").digest()
    expected = hashlib.sha256(b"florist/ids/2" + struct.pack("<q", 2) + both).hexdigest()
    assert fingerprint(IdColumn.from_bytes([b"a", b"bc"])) == expected
    assert expected == "24d78111fe506e2317dc1f3825e37a5b716d3ef2dcc880fec9e5a02a82c4b2b7"


def test_fingerprint_depends_only_on_the_ids_and_their_order(tmp_path: Path) -> None:
    column = read_ids(write(tmp_path, "id\na\nbc\nd\n"), "id", "strip")
    again = read_ids(write_parquet(tmp_path, ["a", "bc", "d"]), "id", "none")
    assert fingerprint(column) == fingerprint(again)
    assert fingerprint(column.slice(1, 3)) == fingerprint(IdColumn.from_bytes([b"bc", b"d"]))
    different = ["a bc", "ab c", "bc a", "a b c", "abc", "a bc ", ""]
    columns = [IdColumn.from_bytes(each.encode().split(b" ")) for each in different]
    assert len({fingerprint(each) for each in columns}) == len(different)


def test_ids_are_taken_in_any_order() -> None:
    ids = IdColumn.from_bytes([b"zero", b"", b"two", b"three"]).slice(0, 4)
    rows = np.array([3, 0, 1, 3])
    assert list(ids.take(rows)) == [b"three", b"zero", b"", b"three"]
    assert list(ids.slice(1, 4).take(np.array([2, 1]))) == [b"three", b"two"]
    assert len(ids.take(np.array([], dtype=np.int64))) == 0
