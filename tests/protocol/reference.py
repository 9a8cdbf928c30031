"""Both protocols in plain Python integers, one element at a time, and the generator of vectors.

It shares nothing with the code under test except the constants of the standards. To write
`tests/protocol/vectors/*.json`, run

    python -m tests.protocol.reference

A vector holds the inputs, the secrets, a digest of every set that is sent, and both results.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parent / "vectors"

P25519 = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
A = 486662
CURVE_TAG = b"FLORIST-V01-curve25519_XMD:SHA-512_ELL2_NU_"


def ladder(k: int, u: int) -> int:
    """RFC 7748's Montgomery ladder for any scalar."""
    x1, x2, z2, x3, z3 = u, 1, 0, u, 1
    for bit in f"{k:b}":
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        x3, z3 = (da + cb) ** 2 % P25519, x1 * (da - cb) ** 2 % P25519
        e = aa - bb
        x2, z2 = aa * bb % P25519, e * (aa + (A - 2) // 4 * e) % P25519
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, -1, P25519) % P25519


def hash_to_u(message: bytes) -> int:
    """RFC 9380, curve25519_XMD:SHA-512_ELL2_NU_, without the multiplication by 8."""
    suffix = CURVE_TAG + bytes([len(CURVE_TAG)])
    b0 = hashlib.sha512(bytes(128) + message + (48).to_bytes(2) + b"\0" + suffix).digest()
    r = int.from_bytes(hashlib.sha512(b0 + b"\1" + suffix).digest()[:48]) % P25519
    u = -A * pow(1 + 2 * r * r, -1, P25519) % P25519
    is_square = pow(u**3 + A * u * u + u, (P25519 - 1) // 2, P25519) == 1
    return u if is_square else (-A - u) % P25519


@dataclass(frozen=True)
class ReferenceGroup:
    """A group as four functions on integers."""

    order: int
    hash: Callable[[bytes], int]
    power: Callable[[int, int], int]
    encode: Callable[[int], bytes]

    def raised(self, elements: list[int], *exponents: int) -> list[int]:
        for exponent in exponents:
            elements = [self.power(x, exponent) for x in elements]
        return elements

    def shuffled(self, elements: list[int]) -> list[int]:
        return sorted(elements, key=self.encode)

    def digest(self, elements: list[int]) -> str:
        return hashlib.sha256(b"".join(map(self.encode, elements))).hexdigest()


def curve() -> ReferenceGroup:
    """x25519: a scalar that is k modulo the order and 0 modulo 8 clears the cofactor."""
    return ReferenceGroup(
        ORDER,
        hash_to_u,
        lambda u, k: ladder(8 * (k * pow(8, -1, ORDER) % ORDER), u),
        lambda u: u.to_bytes(32, "little"),
    )


def modp2048() -> ReferenceGroup:
    """The quadratic residues modulo RFC 3526's 2048-bit prime, given by its formula."""
    p = 2**2048 - 2**1984 - 1 + 2**64 * (int(2**1918 * pi_digits(1918)) + 124476)
    tag = b"FLORIST-V01-modp2048_XOF:SHAKE-256_SQUARE_"

    def hash_to_square(message: bytes) -> int:
        wide = hashlib.shake_256(bytes([len(tag)]) + tag + message).digest((2048 + 128 + 7) // 8)
        return pow(int.from_bytes(wide) % p, 2, p)

    return ReferenceGroup(
        (p - 1) // 2, hash_to_square, lambda x, k: pow(x, k, p), lambda x: x.to_bytes(256)
    )


def pi_digits(bits: int) -> Fraction:
    """Return pi to at least this many binary digits, by Machin's formula."""
    scale = 1 << (bits + 64)

    def arctan_inverse(x: int) -> int:
        total, term, n = 0, scale // x, 0
        while term:
            total += (-1) ** n * (term // (2 * n + 1))
            term //= x * x
            n += 1
        return total

    return Fraction(4 * (4 * arctan_inverse(5) - arctan_inverse(239)), scale)


GROUPS = {"x25519": curve, "modp2048": modp2048}


def transcript(
    group: ReferenceGroup,
    active: list[bytes],
    passive: list[bytes],
    s: tuple[int, int, int],
    t: tuple[int, int, int],
) -> dict[str, Any]:
    """Run Algorithm 1, line by line, and return the digests and results."""
    raised, shuffled, digest = group.raised, group.shuffled, group.digest
    i_a = [group.hash(x) for x in active]
    i_p = [group.hash(x) for x in passive]
    (s1, s2, s3), (t1, t2, t3) = s, t
    step3 = shuffled(raised(i_a, s1))
    step4 = shuffled(raised(step3, t1))
    step5 = shuffled(raised(i_p, t1))
    step6 = shuffled(raised(step5, s1))
    step7 = sorted(set(step4) | set(step6))
    step8 = shuffled(raised(step7, s2, s3))
    step9 = shuffled(raised(step8, t2, t3))
    step11 = raised(i_a, s2)
    step11_back = raised(step11, t1, t2, t3)
    step12 = raised(i_p, t2)
    step12_back = raised(step12, s1, s2, s3)
    return {
        "sets": {
            "3": digest(step3),
            "4": digest(step4),
            "5": digest(step5),
            "6": digest(step6),
            "8": digest(step8),
            "9": digest(step9),
            "11": digest(step11),
            "111": digest(step11_back),
            "12": digest(step12),
            "112": digest(step12_back),
        },
        "union_sha256": digest(step9),
        "active_ranks": [step9.index(x) for x in raised(step11_back, s1, s3)],
        "passive_ranks": [step9.index(x) for x in raised(step12_back, t1, t3)],
    }


def merged_transcript(
    group: ReferenceGroup,
    merging: list[bytes],
    completing: list[bytes],
    keys: tuple[int, int],
    other_keys: tuple[int, int],
) -> tuple[dict[str, Any], list[int], list[int]]:
    """Run the merged protocol, line by line; return digests, and the ranks of both parties."""
    raised, shuffled, digest = group.raised, group.shuffled, group.digest
    (a, c), (b, d) = keys, other_keys
    salt = hashlib.sha256(b"florist/uid/1").digest()[:16]

    def uid(element: int) -> bytes:
        return hashlib.sha256(b"\0" + salt + group.encode(element)).digest()[:16]

    u = raised([group.hash(x) for x in merging], a)
    own_order = raised([group.hash(y) for y in completing], b)
    u_prime = shuffled(own_order)
    e_in_order = raised(u, b)
    e, v = shuffled(e_in_order), raised(e_in_order, d)
    e_prime = raised(u_prime, a)
    w = raised(e_prime, c)
    remainder = shuffled(raised([x for x in e if x not in set(e_prime)], c))
    w_d = raised(w, d)
    union = sorted(map(uid, w_d + raised(remainder, d)))
    hashes = hashlib.sha256(b"".join(union)).hexdigest()
    own = {y: uid(w_d[u_prime.index(y)]) for y in own_order}
    sets = {
        "21": digest(u),
        "121": digest(v),
        "22": digest(u_prime),
        "122": digest(w),
        "23": digest(e),
        "123": digest(remainder),
        "24": hashes,
    }
    return (
        {"sets": sets, "union_sha256": hashes},
        [union.index(uid(x)) for x in raised(v, c)],
        [union.index(own[y]) for y in own_order],
    )


def merged_vector(
    name: str, seed: int, only_active: int, only_passive: int, both: int, merging: str
) -> dict[str, Any]:
    """Return one vector of the merged protocol."""
    inputs = vector(name, seed, only_active, only_passive, both)
    group = GROUPS[name]()
    ours, theirs = ([x.encode() for x in inputs[f"{role}_ids"]] for role in ("active", "passive"))
    s, t = ((int(inputs[key][0], 16), int(inputs[key][1], 16)) for key in ("s", "t"))
    if merging == "active":
        result, active, passive = merged_transcript(group, ours, theirs, s, t)
    else:
        result, passive, active = merged_transcript(group, theirs, ours, t, s)
    ranks = {"active_ranks": active, "passive_ranks": passive}
    return {**inputs, **result, **ranks, "merging": merging}


def vector(name: str, seed: int, only_active: int, only_passive: int, both: int) -> dict[str, Any]:
    """Return one vector of Algorithm 1; its secrets are seeded, as they are for tests only."""
    rng = random.Random(seed)
    group = GROUPS[name]()
    everyone = [f"üser-{seed}-{i}" for i in range(only_active + only_passive + both)]
    active = rng.sample(everyone[: only_active + both], only_active + both)
    passive = rng.sample(everyone[only_active:], only_passive + both)
    s = tuple(rng.randrange(1, group.order) for _ in range(3))
    t = tuple(rng.randrange(1, group.order) for _ in range(3))
    result = transcript(
        group,
        [x.encode() for x in active],
        [x.encode() for x in passive],
        (s[0], s[1], s[2]),
        (t[0], t[1], t[2]),
    )
    return {
        "group": name,
        "merging": None,
        "active_ids": active,
        "passive_ids": passive,
        "s": [hex(x) for x in s],
        "t": [hex(x) for x in t],
        **result,
    }


def all_vectors() -> dict[str, dict[str, Any]]:
    """Return every vector by file name."""
    return {
        "x25519-some-shared.json": vector("x25519", 1, 5, 7, 4),
        "x25519-none-shared.json": vector("x25519", 2, 3, 2, 0),
        "x25519-all-shared.json": vector("x25519", 3, 0, 0, 6),
        "x25519-one-empty.json": vector("x25519", 4, 3, 0, 0),
        "modp2048-some-shared.json": vector("modp2048", 5, 2, 3, 2),
        "x25519-merged-some-shared.json": merged_vector("x25519", 6, 5, 7, 4, "active"),
        "x25519-merged-by-passive.json": merged_vector("x25519", 7, 6, 3, 4, "passive"),
        "x25519-merged-none-shared.json": merged_vector("x25519", 8, 3, 2, 0, "active"),
        "x25519-merged-all-shared.json": merged_vector("x25519", 9, 0, 0, 6, "passive"),
        "x25519-merged-one-empty.json": merged_vector("x25519", 10, 3, 0, 0, "passive"),
        "modp2048-merged-some-shared.json": merged_vector("modp2048", 11, 2, 3, 2, "active"),
    }


if __name__ == "__main__":
    for file_name, content in all_vectors().items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (VECTORS / file_name).write_text(text + "\n", encoding="utf-8")
