"""Both parties together against the ideal functionality; bad messages; what the parties see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ProtocolViolation
from florist.common.label_aggregate import LabelEncryptor, SumCollector
from tests.unit.groups.test_ristretto255 import INVALID, MULTIPLES
from tests.unit.label_aggregate.oracles import changed, opened, plain_sums

if TYPE_CHECKING:
    from florist.common.groups.parallel import Threads

SESSION = b"a session"
SECRET = bytes(range(32))
OTHER = bytes(range(32, 64))
NEUTRAL = bytes(32)

#: Three rows, of which the passive party has the first and the last, and four coordinates.
VALUES = np.array([3, -64, 5])
ROWS = np.array([0, 2])
COORDINATES = np.array([[0, 2], [1, 2]], np.int32)


def encryptor() -> LabelEncryptor:
    return LabelEncryptor(SECRET, SESSION)


def collector(count: int = 4) -> SumCollector:
    return SumCollector(OTHER, SESSION, encryptor().public_key, count)


def collected() -> SumCollector:
    made = collector()
    made.add(encryptor().encrypt(VALUES, 0), COORDINATES, ROWS)
    return made


@pytest.mark.usefixtures("either")
def test_an_example() -> None:
    active, passive = encryptor(), collected()
    answer = active.answer(passive.request(), [10, -20, 0, 7])
    assert passive.finish(answer, 100).tolist() == [3 + 10, 5 - 20, 3 + 5, 7]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ideal_functionality(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 40), "people")
    k, columns = data.draw(st.integers(1, 9), "sums"), data.draw(st.integers(1, 4), "columns")
    small = st.integers(-64, 64)
    values = np.array(data.draw(st.lists(small, min_size=n, max_size=n)), np.int64)
    own = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    rows = np.flatnonzero(own)
    places = st.lists(st.integers(0, k - 1), min_size=columns, max_size=columns)
    drawn = data.draw(st.lists(places, min_size=len(rows), max_size=len(rows)))
    coordinates = np.array(drawn, np.int32).reshape(len(rows), columns)
    noise = data.draw(st.lists(st.integers(-1000, 1000), min_size=k, max_size=k))
    cut = data.draw(st.integers(0, n), "the end of the first chunk")

    active = LabelEncryptor(os.urandom(32), SESSION)
    passive = SumCollector(os.urandom(32), SESSION, active.public_key, k)
    for start, stop in ((0, cut), (cut, n)):
        inside = (rows >= start) & (rows < stop)
        chunk = active.encrypt(values[start:stop], start)
        passive.add(chunk, coordinates[inside], rows[inside] - start)
    answer = active.answer(passive.request(), noise)
    expected = np.array(plain_sums(values, rows, coordinates, k)) + noise
    assert passive.finish(answer, 64 * 40 * 4 + 1000).tolist() == expected.tolist()


def test_threads_do_not_change_a_byte(threads: Threads) -> None:
    """More rows than a slice has."""
    rng = np.random.default_rng(1)
    values, rows = rng.integers(-64, 65, 5001), np.flatnonzero(rng.random(5001) < 0.8)
    coordinates = rng.integers(0, 50, (len(rows), 3)).astype(np.int32)
    noise = rng.integers(-9, 10, 50)
    results = []
    for used in (None, threads):
        active = LabelEncryptor(SECRET, SESSION, used)
        passive = SumCollector(OTHER, SESSION, active.public_key, 50, used)
        ciphertexts = active.encrypt(values, 0)
        passive.add(ciphertexts, coordinates, rows)
        answer = active.answer(passive.request(), noise.tolist())
        sums = passive.finish(answer, 10**6)
        assert (
            sums.tolist() == (np.array(plain_sums(values, rows, coordinates, 50)) + noise).tolist()
        )
        results.append((ciphertexts.tobytes(), passive.request().tobytes(), answer.tobytes()))
    assert results[0] == results[1]


# --- resuming


@pytest.mark.usefixtures("either")
def test_a_resumed_run_sends_the_same() -> None:
    assert encryptor().public_key == encryptor().public_key
    whole = encryptor().encrypt(VALUES, 7)
    assert (whole[1:] == encryptor().encrypt(VALUES[1:], 8)).all()
    assert (collected().request() == collected().request()).all()
    request = collected().request()
    one, two = (encryptor().answer(request, [1, 2, 3, 4]) for _ in range(2))
    assert (one == two).all()
    assert collected().finish(one, 100).tolist() == [3 + 1, 5 + 2, 8 + 3, 4]


def test_the_kernels_do_not_change_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    ciphertexts, request = encryptor().encrypt(VALUES, 0), collected().request()
    answer = encryptor().answer(request, [1, 2, 3, 4])
    monkeypatch.setattr("florist.common.groups.kernels.native", None)
    assert (encryptor().encrypt(VALUES, 0) == ciphertexts).all()
    assert (collected().request() == request).all()
    assert (encryptor().answer(request, [1, 2, 3, 4]) == answer).all()


# --- what the parties see


def elements(message: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> set[bytes]:
    return {row.tobytes() for row in message.reshape(-1, 32)}


def test_ciphertexts_are_fresh() -> None:
    """Equal values, and 0, look like all others; another session, row or value changes all."""
    base = encryptor().encrypt(np.zeros(5, np.int64), 0)
    assert len(elements(base)) == 10
    assert NEUTRAL not in elements(base)
    others = (
        LabelEncryptor(SECRET, b"another").encrypt(np.zeros(5, np.int64), 0),
        LabelEncryptor(OTHER, SESSION).encrypt(np.zeros(5, np.int64), 0),
        encryptor().encrypt(np.zeros(5, np.int64), 5),
        # Not only the second element, of which the difference would tell that of the values.
        encryptor().encrypt(np.ones(5, np.int64), 0),
    )
    for other in others:
        assert elements(base).isdisjoint(elements(other))


def test_requests_are_fresh() -> None:
    """Also without any row, the request consists of elements that the active party cannot know."""
    active = encryptor()
    sent = active.encrypt(VALUES, 0)
    none = SumCollector(OTHER, SESSION, active.public_key, 4)
    fewer = collector()
    fewer.add(sent, COORDINATES[:1], ROWS[:1])
    another = SumCollector(os.urandom(32), SESSION, active.public_key, 4)
    another.add(sent, COORDINATES, ROWS)
    session = SumCollector(OTHER, b"another", active.public_key, 4)
    session.add(sent, COORDINATES, ROWS)
    requests = [each.request() for each in (collected(), none, fewer, another, session)]
    seen: set[bytes] = {row.tobytes() for row in sent.reshape(-1, 32)}
    for request in requests:
        assert len(elements(request)) == 8
        assert NEUTRAL not in elements(request)
        assert seen.isdisjoint(elements(request))
        seen |= elements(request)


def test_the_decrypted_request_is_masked() -> None:
    """The plaintexts of all requests differ, also for equal sums; none is a small multiple."""
    key = int.from_bytes(encryptor()._key, "little")
    small = set(MULTIPLES)
    plain = set()
    for secret in (OTHER, os.urandom(32)):
        passive = SumCollector(secret, SESSION, encryptor().public_key, 4)
        plain |= {opened(key, row).encode().hex() for row in passive.request()}
    assert len(plain) == 8
    assert plain.isdisjoint(small)


def test_bits_of_requests_are_balanced() -> None:
    """The request of one row in all coordinates: encodings as random as those of fresh elements."""
    passive = SumCollector(OTHER, SESSION, encryptor().public_key, 2000)
    sent = encryptor().encrypt(np.array([1]), 0)
    passive.add(sent, np.arange(2000, dtype=np.int32)[None], np.array([0]))
    bits = np.unpackbits(passive.request().reshape(-1, 32), axis=1, bitorder="little")[:, 1:255]
    # Bit 0 and bit 255 are always 0. 254 proportions of 4000 bits: 6 standard deviations.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(4000)


def test_secrets_are_not_in_reprs() -> None:
    passive = collected()
    passive.request()
    shown = repr(encryptor()) + repr(passive)
    assert "object at" in shown
    assert SECRET.hex() not in shown
    assert repr(SECRET) not in shown


# --- bad messages

BAD = [pytest.param(bytes.fromhex(each), id=each[:8]) for each in INVALID]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("encoded", BAD)
def test_invalid_public_keys(encoded: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="public key"):
        SumCollector(OTHER, SESSION, encoded, 4)


@pytest.mark.parametrize("encoded", [b"", bytes(31), bytes(33), NEUTRAL])
def test_public_keys_of_another_size_or_neutral(encoded: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="public key"):
        SumCollector(OTHER, SESSION, encoded, 4)


@pytest.mark.parametrize("encoded", BAD)
@pytest.mark.parametrize("part", [slice(0, 32), slice(32, 64)])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_invalid_ciphertexts(encoded: bytes, part: slice, row: int) -> None:
    """Row 1 is not this party's own: it stops all the same, or the peer would learn that."""
    passive, sent = collector(), encryptor().encrypt(VALUES, 0)
    with pytest.raises(ProtocolViolation, match="ciphertext"):
        passive.add(changed(sent, row, part, encoded), COORDINATES, ROWS)
    passive.add(sent, COORDINATES, ROWS)
    assert (passive.request() == collected().request()).all()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("encoded", BAD[:1])
def test_an_invalid_ciphertext(encoded: bytes) -> None:
    sent = changed(encryptor().encrypt(VALUES, 0), 1, slice(0, 32), encoded)
    with pytest.raises(ProtocolViolation, match="ciphertext"):
        collector().add(sent, COORDINATES, ROWS)


@pytest.mark.parametrize("encoded", BAD)
@pytest.mark.parametrize("part", [slice(0, 32), slice(32, 64)])
def test_invalid_requests(encoded: bytes, part: slice) -> None:
    request = collected().request()
    with pytest.raises(ProtocolViolation, match="request"):
        encryptor().answer(changed(request, 3, part, encoded), [0] * 4)


@pytest.mark.parametrize("encoded", BAD)
def test_invalid_answers(encoded: bytes) -> None:
    passive = collected()
    answer = encryptor().answer(passive.request(), [0] * 4)
    with pytest.raises(ProtocolViolation, match="answer"):
        passive.finish(changed(answer, 2, slice(0, 32), encoded), 100)
    assert passive.finish(answer, 100).tolist() == [3, 5, 8, 0]


def test_messages_of_another_size() -> None:
    passive = collected()
    request = passive.request()
    for bad in (request[:3], request[:, :63], np.concatenate([request, request])):
        with pytest.raises(ProtocolViolation, match="request"):
            encryptor().answer(bad, [0] * 4)
    answer = encryptor().answer(request, [0] * 4)
    for bad in (answer[:3], answer[:, :31], np.concatenate([answer, answer])):
        with pytest.raises(ProtocolViolation, match="answer"):
            passive.finish(bad, 100)
    sent = encryptor().encrypt(VALUES, 0)
    for bad in (sent[:, :63], sent.reshape(-1, 32), sent.reshape(-1)):
        with pytest.raises(ProtocolViolation, match="ciphertext"):
            collector().add(bad, COORDINATES, ROWS)


@pytest.mark.usefixtures("either")
def test_sums_out_of_range() -> None:
    passive = collected()
    answer = encryptor().answer(passive.request(), [0, 0, 93, 0])
    with pytest.raises(ProtocolViolation, match="a sum is not from -100 to 100"):
        passive.finish(answer, 100)
    assert passive.finish(answer, 101).tolist() == [3, 5, 101, 0]
    answer = encryptor().answer(passive.request(), [0, 0, -110, 0])
    with pytest.raises(ProtocolViolation, match="a sum is not from"):
        passive.finish(answer, 100)


def test_an_answer_to_another_request() -> None:
    other = SumCollector(os.urandom(32), SESSION, encryptor().public_key, 4)
    answer = encryptor().answer(other.request(), [0] * 4)
    with pytest.raises(ProtocolViolation, match="a sum is not from"):
        collected().finish(answer, 10**4)


@pytest.mark.usefixtures("either")
def test_neutral_elements_in_messages() -> None:
    """A ciphertext and a request of neutral elements are valid: encryptions of 0."""
    passive = collector()
    passive.add(np.zeros((3, 64), np.uint8), COORDINATES, ROWS)
    answer = encryptor().answer(passive.request(), [1, 2, 3, 4])
    assert passive.finish(answer, 10).tolist() == [1, 2, 3, 4]
    answer = encryptor().answer(np.zeros((16, 64), np.uint8), range(16))
    assert [row.tobytes().hex() for row in answer] == list(MULTIPLES)


# --- mistakes of the caller


def test_arguments() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        LabelEncryptor(bytes(31), SESSION)
    with pytest.raises(ValueError, match="32 bytes"):
        SumCollector(bytes(31), SESSION, encryptor().public_key, 4)
    for values in (np.array([2**60]), np.array([-(2**60)]), np.zeros((2, 2), np.int64)):
        with pytest.raises(ValueError, match="small integers"):
            encryptor().encrypt(values, 0)
    with pytest.raises(ValueError, match="first row"):
        encryptor().encrypt(VALUES, -1)
    with pytest.raises(OverflowError):
        encryptor().answer(collected().request(), [2**63, 0, 0, 0])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("rows", "coordinates", "fault"),
    [
        ([0], [[0], [1]], "1 rows"),
        ([0], [0], "shape"),
        ([3], [[0]], "out of range"),
        ([-1], [[0]], "out of range"),
        ([0], [[4]], "out of range"),
        ([0], [[-1]], "out of range"),
    ],
)
def test_rows_and_coordinates(rows: list[int], coordinates: list[int], fault: str) -> None:
    passive = collector()
    sent = encryptor().encrypt(VALUES, 0)
    with pytest.raises(ValueError, match=fault):
        passive.add(sent, np.array(coordinates, np.int32), np.array(rows))


def test_nothing_is_added_after_the_request() -> None:
    passive = collected()
    passive.request()
    with pytest.raises(RuntimeError, match="requested already"):
        passive.add(encryptor().encrypt(VALUES, 0), COORDINATES, ROWS)
