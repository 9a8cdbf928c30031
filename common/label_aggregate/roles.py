"""The two parties of the encrypted sums, without the network; see the package for the protocol."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.ristretto255 import ENCODED_BYTES
from florist.common.groups.ristretto255_arrays import (
    POINT_WORDS,
    accumulate,
    add,
    base_of,
    encode,
    generator,
    multiply_base,
    negated,
    neutral,
    scalars_of,
)
from florist.common.label_aggregate.discrete_logarithm import small_logarithms
from florist.common.label_aggregate.encryption import (
    CIPHERTEXT_BYTES,
    blinded,
    decoded,
    decoded_pairs,
    decrypted,
    encrypted,
)
from florist.common.label_aggregate.key_derivation import (
    VALUE_LIMIT,
    check_secret,
    derived,
    derived_scalar,
    row_scalars,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from florist.common.groups.parallel import Threads
    from florist.common.groups.ristretto255_arrays import ByteRows, Points

_Result = TypeVar("_Result")

PUBLIC_KEY_BYTES = ENCODED_BYTES
#: Rows that a thread processes at once: some hundredths of a second.
_SLICE = 2048


class LabelEncryptor:
    """The active party: encrypts an integer for each row, and decrypts blinded sums.

    Everything that it sends is a function of the secret, the session and the arguments, so that a
    resumed run sends the same bytes. What the caller owes: for one secret and session it encrypts
    one value per row, and answers one request with one noise.
    """

    def __init__(self, secret: bytes, session: bytes, threads: Threads | None = None) -> None:
        """Derive the keys.

        Args:
            secret: 32 bytes.
            session: public; identifies the run, the parties and the output.
            threads: runs the work in parallel; None for the calling thread only.
        """
        check_secret(secret)
        self._key = derived_scalar(secret, "secret key", session)
        self._row_key = derived(secret, "encryption", session)[:32]
        self._threads = threads
        key = np.frombuffer(self._key, dtype=np.uint8).reshape(1, -1)
        #: The first message.
        self.public_key: bytes = encode(multiply_base(generator(), key)).tobytes()

    def encrypt(self, values: npt.NDArray[np.int64], first: int) -> ByteRows:
        """Encrypt the values of consecutive rows.

        Args:
            values: one per row, of absolute value below `VALUE_LIMIT`: (n,).
            first: the number of the first row.

        Returns:
            A ciphertext per row: (n, 64).
        """
        values = np.asarray(values, dtype=np.int64)
        if values.ndim != 1 or (
            values.size and not -VALUE_LIMIT < values.min() <= values.max() < VALUE_LIMIT
        ):
            raise ValueError("not a row of small integers")
        if first < 0:
            raise ValueError(f"a first row of {first}")

        def encrypt(start: int, stop: int) -> ByteRows:
            part = values[start:stop]
            return encrypted(self._key, row_scalars(self._row_key, first + start, part), part)

        return np.concatenate(_in_slices(self._threads, encrypt, len(values)))

    def answer(self, request: ByteRows, noise: Sequence[int]) -> ByteRows:
        """Decrypt the blinded sums, and add noise.

        Args:
            request: the passive party's message: (k, 64).
            noise: one integer per sum, of absolute value below `VALUE_LIMIT`.

        Returns:
            An element per sum: (k, 32).

        Raises:
            ProtocolViolation: the request has another size, or not only valid elements.
        """
        _check_shape(request, len(noise), CIPHERTEXT_BYTES, "the request of the label aggregate")
        added = np.array(noise, dtype=np.int64)

        def answer(start: int, stop: int) -> ByteRows:
            pairs = decoded_pairs(request[start:stop], "the request of the label aggregate")
            noises = multiply_base(generator(), scalars_of(added[start:stop]))
            return encode(add(decrypted(self._key, pairs), noises))

        return np.concatenate(_in_slices(self._threads, answer, len(request)))


class SumCollector:
    """The passive party: adds ciphertexts by coordinate, and learns the noised sums.

    All ciphertexts are checked, also those of rows that it does not add: whether it stops must not
    depend on which rows it has. Everything that it sends is a function of the secret, the session,
    the public key and the sums of the ciphertexts. A request for other sums is blinded
    independently.
    """

    def __init__(
        self,
        secret: bytes,
        session: bytes,
        public_key: bytes,
        coordinates: int,
        threads: Threads | None = None,
    ) -> None:
        """Start with empty sums.

        Args:
            secret: 32 bytes.
            session: public; identifies the run, the parties and the output.
            public_key: the active party's first message.
            coordinates: the number k of sums.
            threads: runs the work in parallel; None for the calling thread only.

        Raises:
            ProtocolViolation: the public key is not a valid one.
        """
        check_secret(secret)
        what = "the public key of the label aggregate"
        if len(public_key) != PUBLIC_KEY_BYTES or not any(public_key):
            raise ProtocolViolation(f"{what}: {len(public_key)} bytes, or the neutral element")
        point = decoded(np.frombuffer(public_key, dtype=np.uint8).reshape(1, -1), what)
        self._public_key = base_of(point)
        self._secret = secret
        self._context = (session, public_key)
        self._coordinates = coordinates
        self._threads = threads
        #: Partial sums (k, 2, 20) that no thread uses at the moment; at most one per thread.
        self._idle: list[Points] = [self._zeros()]
        self._request: ByteRows | None = None
        self._masks: ByteRows = np.empty((0, 32), dtype=np.uint8)

    def _zeros(self) -> Points:
        return neutral(2 * self._coordinates).reshape(-1, 2, POINT_WORDS)

    def add(
        self,
        ciphertexts: ByteRows,
        coordinates: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int64],
    ) -> None:
        """Add the ciphertexts of one chunk to the sums of their coordinates.

        Needs 320 bytes of memory per ciphertext.

        Args:
            ciphertexts: the active party's message, all rows of the chunk: (n, 64).
            coordinates: those of the rows that this party has, below k: (m, columns).
            rows: which rows of the chunk these are: (m,).

        Raises:
            ProtocolViolation: not all ciphertexts are valid. Then nothing is added.
        """
        if self._request is not None:
            raise RuntimeError("the sums were requested already")
        what = "a ciphertext of the label aggregate"
        _check_shape(ciphertexts, len(ciphertexts), CIPHERTEXT_BYTES, what)
        if len(rows) != len(coordinates) or coordinates.ndim != 2:
            raise ValueError(f"{len(rows)} rows, but coordinates of shape {coordinates.shape}")
        if _outside(rows, len(ciphertexts)) or _outside(coordinates, self._coordinates):
            raise ValueError("rows or coordinates: out of range")
        pairs = np.empty((len(ciphertexts), 2, POINT_WORDS), dtype=np.uint64)

        def decode(start: int, stop: int) -> None:
            pairs[start:stop] = decoded_pairs(ciphertexts[start:stop], what)

        def collect(start: int, stop: int) -> None:
            try:
                sums = self._idle.pop()
            except IndexError:
                sums = self._zeros()
            accumulate(sums, pairs, rows[start:stop], coordinates[start:stop])
            self._idle.append(sums)

        _in_slices(self._threads, decode, len(ciphertexts))
        _in_slices(self._threads, collect, len(rows))

    def request(self) -> ByteRows:
        """Return the blinded sums for the active party: (k, 64). Nothing can be added any more."""
        if self._request is None:
            while len(self._idle) > 1:
                one, other = (self._idle.pop().reshape(-1, POINT_WORDS) for _ in range(2))
                self._idle.append(add(one, other).reshape(-1, 2, POINT_WORDS))
            sums = self._idle[0]
            # Another request must not have the same randomness: the peer would see the difference.
            digest = hashlib.sha512(encode(sums.reshape(-1, POINT_WORDS)).data).digest()
            fresh, self._masks = (
                row_scalars(
                    derived(self._secret, purpose, *self._context, digest)[:32],
                    0,
                    np.zeros(self._coordinates, dtype=np.int64),
                )
                for purpose in ("re-randomisation", "masks")
            )
            pairs = blinded(sums, self._public_key, fresh, self._masks)
            self._request = encode(pairs.reshape(-1, POINT_WORDS)).reshape(-1, CIPHERTEXT_BYTES)
        return self._request

    def finish(self, answer: ByteRows, bound: int) -> npt.NDArray[np.int64]:
        """Return the noised sums.

        Args:
            answer: the active party's answer to the request: (k, 32).
            bound: the largest possible absolute value of a noised sum.

        Raises:
            ProtocolViolation: the answer has another size or invalid elements, or a sum exceeds the
                bound.
        """
        self.request()
        what = "the answer of the label aggregate"
        _check_shape(answer, self._coordinates, ENCODED_BYTES, what)
        masks = multiply_base(generator(), negated(self._masks))
        sums, found = small_logarithms(add(decoded(answer, what), masks), bound)
        if not found.all():
            raise ProtocolViolation(f"{what}: a sum is not from {-bound} to {bound}")
        return sums


def _check_shape(message: ByteRows, rows: int, width: int, what: str) -> None:
    if message.shape != (rows, width) or message.dtype != np.uint8:
        raise ProtocolViolation(f"{what} has shape {message.shape}, not {(rows, width)}")


def _outside(numbers: npt.NDArray[np.integer], end: int) -> bool:
    return bool(numbers.size and (numbers.min() < 0 or numbers.max() >= end))


def _in_slices(
    threads: Threads | None, work: Callable[[int, int], _Result], length: int
) -> list[_Result]:
    """Call `work(start, stop)` for slices that cover `range(length)`."""
    if threads is not None:
        return threads.map_slices(work, length, _SLICE)
    starts = range(0, max(length, 1), _SLICE)
    return [work(start, min(start + _SLICE, length)) for start in starts]
