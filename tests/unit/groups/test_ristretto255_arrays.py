"""ristretto255 on arrays, with and without the kernels, against RFC 9496 and plain elements."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florist.common.groups import kernels
from florist.common.groups import ristretto255_arrays as arrays
from florist.common.groups.ristretto255 import IDENTITY, ORDER, Element, times_generator
from tests.unit.groups.oracles import numbers_of, rows_of
from tests.unit.groups.test_ristretto255 import DERIVED, INVALID, MULTIPLES

P = 2**255 - 19
#: Scalars at which digits, carries and reductions are special.
SPECIAL = (0, 1, 2, 7, 8, 9, 15, 16, ORDER - 1, ORDER, ORDER + 1, 2**252, 2**255 - 1, 2**256 - 1)

any_scalars = st.one_of(st.sampled_from(SPECIAL), st.integers(0, 2**256 - 1))
batches = st.lists(any_scalars, min_size=1, max_size=11)


@pytest.fixture(params=["native", "without_ifma", "without_kernels"])
def either(request: pytest.FixtureRequest) -> None:
    """Run a test with the kernels, with the portable ones, and without any."""
    request.getfixturevalue(request.param)


@pytest.fixture(params=["native", "without_ifma"])
def kernel(request: pytest.FixtureRequest) -> None:
    """Run a test with the kernels, and with the portable ones."""
    request.getfixturevalue(request.param)


#: The kernels are the same for all examples of a test.
ANY_KERNEL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def scalar_rows(numbers: list[int]) -> arrays.ByteRows:
    return rows_of([number.to_bytes(32, "little") for number in numbers])


def random_points(count: int) -> arrays.Points:
    wide = np.frombuffer(os.urandom(64 * count), np.uint8).reshape(-1, 64)
    return arrays.multiply_base(arrays.generator(), arrays.reduced(wide))


def elements_of(points: arrays.Points) -> list[Element]:
    """The elements of points, by way of their encodings."""
    found = [Element.decode(row.tobytes()) for row in arrays.encode(points)]
    return [element for element in found if element is not None]


def hexes(points: arrays.Points) -> list[str]:
    return [row.tobytes().hex() for row in arrays.encode(points)]


@pytest.mark.usefixtures("either")
class TestVectors:
    def test_multiples_of_the_generator(self) -> None:
        encoded = rows_of([bytes.fromhex(each) for each in MULTIPLES])
        points, valid = arrays.decode(encoded)
        assert valid.all()
        assert hexes(points) == list(MULTIPLES)
        scalars = scalar_rows(list(range(16)))
        assert hexes(arrays.multiply_base(arrays.generator(), scalars)) == list(MULTIPLES)
        assert hexes(arrays.multiply_base(arrays.base_of(points[1:2]), scalars)) == list(MULTIPLES)
        for k in range(16):
            assert hexes(arrays.multiply(points[1:2], bytes([k]) + bytes(31))) == [MULTIPLES[k]]

    def test_invalid_encodings(self) -> None:
        for size in (1, 2, 3, 4, 5, len(INVALID)):
            encoded = rows_of([bytes.fromhex(each) for each in INVALID[:size]])
            points, valid = arrays.decode(encoded)
            assert not valid.any()
            assert hexes(points) == [MULTIPLES[0]] * size

    def test_invalid_among_valid(self) -> None:
        mixed = [value for pair in zip(MULTIPLES, INVALID, strict=False) for value in pair]
        points, valid = arrays.decode(rows_of([bytes.fromhex(each) for each in mixed]))
        assert valid.tolist() == [True, False] * len(MULTIPLES)
        assert hexes(points)[::2] == list(MULTIPLES)

    def test_derived_elements(self) -> None:
        """Points with Z other than 1, as additions make them."""
        for _, expected in DERIVED:
            points, valid = arrays.decode(rows_of([bytes.fromhex(expected)]))
            assert valid.all()
            assert hexes(arrays.add(arrays.add(points, points), arrays.neutral(1))) == [
                arrays.encode(arrays.add(points, points)).tobytes().hex()
            ]
            assert hexes(points) == [expected]

    def test_neutral_elements(self) -> None:
        assert hexes(arrays.neutral(3)) == [MULTIPLES[0]] * 3
        points = random_points(3)
        minus = arrays.multiply(points, (ORDER - 1).to_bytes(32, "little"))
        assert hexes(arrays.add(points, minus)) == [MULTIPLES[0]] * 3
        assert hexes(arrays.multiply(points, ORDER.to_bytes(32, "little"))) == [MULTIPLES[0]] * 3
        assert hexes(arrays.multiply(arrays.neutral(2), os.urandom(32))) == [MULTIPLES[0]] * 2

    def test_empty_arrays(self) -> None:
        none = np.empty((0, 32), np.uint8)
        points, valid = arrays.decode(none)
        assert points.shape == (0, 20)
        assert valid.shape == (0,)
        assert arrays.encode(points).shape == (0, 32)
        assert arrays.add(points, points).shape == (0, 20)
        assert arrays.multiply(points, bytes(32)).shape == (0, 20)
        assert arrays.multiply_base(arrays.generator(), none).shape == (0, 20)
        assert arrays.ordinates(points).shape == (0,)
        assert arrays.reduced(np.empty((0, 64), np.uint8)).shape == (0, 32)
        assert arrays.scalars_of(np.empty(0, np.int64)).shape == (0, 32)

    def test_wrong_shapes(self) -> None:
        for array in (np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((1, 32))):
            with pytest.raises(ValueError, match="shape"):
                arrays.decode(array)  # type: ignore[arg-type]

    def test_cleared_points_identify_elements(self) -> None:
        """The four points of an element become one; ordinates identify it up to its sign."""
        root = 19681161376707505956807079304988542015446066515923890162744021073123829784752
        element = times_generator(12345)
        x, y, z, t = element
        same = [
            element,
            Element(-x, -y, z, t),
            Element(root * y % P, root * x % P, z, -t),
            Element(-root * y % P, -root * x % P, z, -t),
        ]
        points = np.concatenate([arrays.points_of([each]) for each in same])
        assert len(set(hexes(points))) == 1
        assert len(set(arrays.ordinates(arrays.cleared(points)).tolist())) == 1
        minus = arrays.multiply(points[:1], (ORDER - 1).to_bytes(32, "little"))
        both = np.concatenate([points[:1], minus, random_points(1)])
        first, second, other = arrays.ordinates(arrays.cleared(both)).tolist()
        assert first == second != other


@pytest.mark.usefixtures("kernel")
@settings(ANY_KERNEL, max_examples=60)
@given(batches)
def test_multiplication_of_the_generator(numbers: list[int]) -> None:
    expected = [times_generator(number).encode().hex() for number in numbers]
    scalars = scalar_rows(numbers)
    assert hexes(arrays.multiply_base(arrays.generator(), scalars)) == expected


@pytest.mark.usefixtures("kernel")
@settings(ANY_KERNEL, max_examples=30)
@given(batches, any_scalars, st.integers(0, ORDER - 1))
def test_multiplication_of_others(numbers: list[int], factor: int, other: int) -> None:
    points = arrays.multiply_base(arrays.generator(), scalar_rows(numbers))
    elements = elements_of(points)
    expected = [element.times(factor).encode().hex() for element in elements]
    assert hexes(arrays.multiply(points, factor.to_bytes(32, "little"))) == expected
    pairs = zip(elements, reversed(numbers), strict=True)
    expected = [element.times(number).encode().hex() for element, number in pairs]
    assert hexes(arrays.multiply_each(points, scalar_rows(numbers[::-1]))) == expected
    base = arrays.base_of(arrays.multiply_base(arrays.generator(), scalar_rows([other])))
    expected = [times_generator(other * number % ORDER).encode().hex() for number in numbers]
    assert hexes(arrays.multiply_base(base, scalar_rows(numbers))) == expected


@pytest.mark.usefixtures("kernel")
@settings(ANY_KERNEL, max_examples=40)
@given(st.data())
def test_sums(data: st.DataObject) -> None:
    one = data.draw(batches)
    other = data.draw(st.lists(any_scalars, min_size=len(one), max_size=len(one)))
    a, b = (arrays.multiply_base(arrays.generator(), scalar_rows(each)) for each in (one, other))
    pairs = zip(one, other, strict=True)
    expected = [times_generator((x + y) % ORDER).encode().hex() for x, y in pairs]
    assert hexes(arrays.add(a, b)) == expected
    expected = [times_generator((x + other[0]) % ORDER).encode().hex() for x in one]
    assert hexes(arrays.add(a, b[:1])) == expected


@pytest.mark.usefixtures("kernel")
@settings(ANY_KERNEL, max_examples=100)
@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=9))
def test_decoding_of_any_bytes(encoded: list[bytes]) -> None:
    """About one in eight even numbers below p is valid."""
    halves = [bytes([each[0] & 254]) + each[1:31] + bytes([each[31] & 127]) for each in encoded]
    for batch in (encoded, halves):
        points, valid = arrays.decode(rows_of(batch))
        expected = [Element.decode(each) for each in batch]
        assert valid.tolist() == [element is not None for element in expected]
        assert hexes(points) == [(element or IDENTITY).encode().hex() for element in expected]


@pytest.mark.usefixtures("kernel")
@settings(ANY_KERNEL, max_examples=100)
@given(
    st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=5),
    any_scalars,
    st.integers(-(2**63), 2**63 - 1),
)
def test_scalars(wide: list[bytes], factor: int, value: int) -> None:
    reduced = arrays.reduced(rows_of(wide, 64))
    numbers = [int.from_bytes(each, "little") for each in wide]
    assert numbers_of(reduced) == [number % ORDER for number in numbers]
    values = np.full(len(wide), value)
    # Scalars that are not reduced are allowed.
    low = rows_of([each[:32] for each in wide])
    result = arrays.multiply_add(low, factor.to_bytes(32, "little"), values)
    assert numbers_of(result) == [(number % 2**256 * factor + value) % ORDER for number in numbers]
    assert numbers_of(arrays.negated(low)) == [-(number % 2**256) % ORDER for number in numbers]
    assert numbers_of(arrays.scalars_of(values)) == [value % ORDER] * len(wide)


@pytest.mark.parametrize("number", [0, 1, ORDER - 1, ORDER, 2 * ORDER, 2**512 - 1, ORDER << 259])
def test_special_wide_numbers(number: int, native: kernels.Kernels) -> None:
    out = np.empty((1, 32), np.uint8)
    native.scalars_reduce(number.to_bytes(64, "little"), out)
    assert numbers_of(out) == [number % ORDER]


@pytest.mark.usefixtures("either")
def test_accumulation() -> None:
    points, _ = arrays.decode(arrays.encode(random_points(2 * 7)))
    pairs = points.reshape(-1, 2, 20)
    rows = np.array([0, 3, 3, 6])
    coordinates = np.array([[0, 1], [1, 1], [2, 0], [4, 0]], np.int32)
    sums = arrays.neutral(2 * 5).reshape(5, 2, 20)
    for _ in range(2):
        arrays.accumulate(sums, pairs, rows, coordinates)
    expected = [[IDENTITY, IDENTITY] for _ in range(5)]
    for row, places in list(zip(rows, coordinates, strict=True)) * 2:
        for place in places:
            for side, element in enumerate(elements_of(pairs[row])):
                expected[place][side] = expected[place][side].plus(element)
    assert hexes(sums.reshape(-1, 20)) == [
        element.encode().hex() for pair in expected for element in pair
    ]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("rows", "coordinates"),
    [([7], [[0]]), ([-1], [[0]]), ([0], [[5]]), ([0], [[-1]]), ([0, 1], [[0], [2**31 - 1]])],
)
def test_accumulation_out_of_range(rows: list[int], coordinates: list[list[int]]) -> None:
    pairs = random_points(2 * 7).reshape(-1, 2, 20)
    sums = arrays.neutral(2 * 5).reshape(5, 2, 20)
    with pytest.raises(ValueError, match="out of range"):
        arrays.accumulate(sums, pairs, np.array(rows), np.array(coordinates, np.int32))
    assert (sums == arrays.neutral(2 * 5).reshape(5, 2, 20)).all()


@pytest.mark.usefixtures("either")
def test_accumulation_of_other_shapes() -> None:
    pairs, sums = random_points(4).reshape(-1, 2, 20), arrays.neutral(2).reshape(1, 2, 20)
    with pytest.raises(ValueError, match="2 rows, but coordinates of 1"):
        arrays.accumulate(sums, pairs, np.array([0, 1]), np.zeros((1, 1), np.int32))
    arrays.accumulate(sums, pairs, np.empty(0, np.int64), np.empty((0, 3), np.int32))
    assert (sums == arrays.neutral(2).reshape(1, 2, 20)).all()


def test_additions_to_equal_coordinates(native: kernels.Kernels) -> None:
    """Vectors of coordinates with and without repetitions, of every size."""
    if not native.ifma_available():
        pytest.skip("this CPU has no AVX-512 IFMA")
    rng = np.random.default_rng(0)
    points, _ = arrays.decode(arrays.encode(random_points(2 * 20)))
    for columns in range(1, 20):
        coordinates = rng.integers(0, 24, (20, columns)).astype(np.int32)
        coordinates[10:] = rng.permuted(np.tile(np.arange(24), (10, 1)), axis=1)[:, :columns]
        rows, results = rng.integers(0, 20, 20), []
        for accumulate in (native.ristretto_accumulate, native.ristretto_accumulate_ifma):
            sums = arrays.neutral(2 * 24)
            accumulate(points, rows, coordinates, sums)
            results.append(arrays.encode(sums))
        assert (results[0] == results[1]).all()


def test_sizes(native: kernels.Kernels) -> None:
    point, table = bytes(160), bytes(64 * 8 * 16 * 8)
    for call, fault in (
        (lambda: native.ristretto_decode(bytes(33), bytearray(160), bytearray(1)), "encoded"),
        (lambda: native.ristretto_decode(bytes(32), bytearray(320), bytearray(1)), "points"),
        (lambda: native.ristretto_decode(bytes(32), bytearray(160), bytearray(2)), "valid"),
        (lambda: native.ristretto_encode(bytes(159), bytearray(32)), "points"),
        (lambda: native.ristretto_encode(point, bytearray(64)), "out"),
        (lambda: native.ristretto_add(bytes(161), point, bytearray(160)), "a"),
        (lambda: native.ristretto_add(2 * point, 3 * point, bytearray(320)), "b"),
        (lambda: native.ristretto_add(point, b"", bytearray(160)), "b"),
        (lambda: native.ristretto_add(point, point, bytearray(320)), "out"),
        (lambda: native.ristretto_multiply(bytes(1), bytes(32), bytearray(160)), "points"),
        (lambda: native.ristretto_multiply(point, bytes(31), bytearray(160)), "scalar"),
        (lambda: native.ristretto_multiply(point, bytes(32), bytearray(0)), "out"),
        (lambda: native.ristretto_table(bytes(320), bytearray(len(table))), "point"),
        (lambda: native.ristretto_table(point, bytearray(len(table) - 8)), "table"),
        (lambda: native.ristretto_multiply_table(table[8:], bytes(32), bytearray(160)), "table"),
        (lambda: native.ristretto_multiply_table(table, bytes(33), bytearray(160)), "scalars"),
        (lambda: native.ristretto_multiply_table(table, bytes(32), bytearray(320)), "out"),
        (lambda: native.ristretto_ordinates(bytes(8), bytearray(8)), "points"),
        (lambda: native.ristretto_ordinates(point, bytearray(16)), "out"),
        (lambda: native.ristretto_accumulate(point, b"", b"", bytearray(320)), "pairs"),
        (lambda: native.ristretto_accumulate(2 * point, b"1", b"", bytearray(320)), "rows"),
        (lambda: native.ristretto_accumulate(b"", b"", b"1", bytearray(320)), "coordinates"),
        (lambda: native.ristretto_accumulate(b"", b"", bytes(4), bytearray(320)), "coordinates"),
        (
            lambda: native.ristretto_accumulate(2 * point, bytes(16), bytes(12), bytearray(320)),
            "coordinates: 3 items for 2 rows",
        ),
        (lambda: native.ristretto_accumulate(b"", b"", b"", bytearray(160)), "sums"),
        (lambda: native.scalars_reduce(bytes(63), bytearray(32)), "wide"),
        (lambda: native.scalars_reduce(bytes(64), bytearray(64)), "out"),
        (lambda: native.scalars_multiply_add(bytes(31), bytes(32), b"", bytearray()), "scalars"),
        (lambda: native.scalars_multiply_add(b"", bytes(31), b"", bytearray()), "factor"),
        (lambda: native.scalars_multiply_add(bytes(32), bytes(32), b"", bytearray(32)), "values"),
        (lambda: native.scalars_multiply_add(b"", bytes(32), b"", bytearray(32)), "out"),
    ):
        with pytest.raises(ValueError, match=fault):
            call()


def test_sizes_with_ifma(native: kernels.Kernels) -> None:
    calls = (
        lambda: native.ristretto_decode_ifma(bytes(32), bytearray(160), bytearray(2)),
        lambda: native.ristretto_encode_ifma(bytes(160), bytearray(64)),
        lambda: native.ristretto_multiply_table_ifma(bytes(8), bytes(32), bytearray(160)),
        lambda: native.ristretto_accumulate_ifma(b"", bytes(8), bytes(4), bytearray(320)),
    )
    error = ValueError if native.ifma_available() else RuntimeError
    for call in calls:
        with pytest.raises(error):
            call()


@pytest.mark.usefixtures("kernel")
def test_nothing_is_written_beyond_the_output() -> None:
    native, table = kernels.native, arrays.generator().table
    assert native is not None
    if native.ifma_available():
        decode, encode = native.ristretto_decode_ifma, native.ristretto_encode_ifma
        multiply = native.ristretto_multiply_table_ifma
    else:
        decode, encode = native.ristretto_decode, native.ristretto_encode
        multiply = native.ristretto_multiply_table
    for count in (*range(1, 20), 31, 32, 33, 40):
        points = np.full((count + 4, 20), 7, np.uint64)
        multiply(table, os.urandom(32 * count), points[:count])
        assert (points[count:] == 7).all()
        encoded = np.full((count + 4, 32), 7, np.uint8)
        encode(points[:count], encoded[:count])
        assert (encoded[count:] == 7).all()
        points[:], valid = 7, np.full(count + 4, 7, np.uint8)
        assert decode(encoded[:count], points[:count], valid[:count])
        assert (points[count:] == 7).all()
        assert (valid[count:] == 7).all()
