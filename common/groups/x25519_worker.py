"""A process that multiplies points with the `cryptography` package, which holds the GIL.

It reads jobs from standard input and writes answers to standard output until the input ends. That
happens when its parent closes it, and also when its parent is killed, so no worker is left behind.
It is run as a file and imports nothing from FLORIST.
"""

from __future__ import annotations

import signal
import struct
import sys
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

#: A job: the number of points, the scalar, then the points. The answer: as many points.
HEADER = struct.Struct("<I32s")
WIDTH = 32


def multiply(points: bytes, scalar: bytes) -> bytes:
    """Multiply each u-coordinate by `scalar`; the result is 0 for points of low order."""
    key = X25519PrivateKey.from_private_bytes(scalar)
    products = []
    for start in range(0, len(points), WIDTH):
        point = X25519PublicKey.from_public_bytes(points[start : start + WIDTH])
        try:
            products.append(key.exchange(point))
        except ValueError:  # how the package reports a product of 0
            products.append(bytes(WIDTH))
    return b"".join(products)


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer jobs until the input ends."""
    while len(header := jobs.read(HEADER.size)) == HEADER.size:
        count, scalar = HEADER.unpack(header)
        points = jobs.read(count * WIDTH)
        if len(points) < count * WIDTH:
            return
        try:
            answers.write(multiply(points, scalar))
            answers.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    # Ctrl-C and SIGTERM are for the parent, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve(sys.stdin.buffer, sys.stdout.buffer)
