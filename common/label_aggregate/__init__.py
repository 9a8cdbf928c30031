"""The label aggregate: the passive party learns noised sums of labels by category, and no more.

The active party has a small integer for each UID of the union, 0 for people whom it lacks. The
passive party has a set of coordinates for each UID that it has, one for each column. It learns, for
each coordinate j, the sum b_j of the integers of its rows with that coordinate, plus noise e_j that
the active party draws. The active party learns nothing. The sums are computed under additive
ElGamal encryption on ristretto255 (`encryption`), in four messages (`roles`):

    1. active    the public key X = x·G
    2. active    for each UID, in the order of the union: (r·G, (r·x + v)·G)
    3. passive   for each coordinate: (R + t·G, C + t·X + m·G), where (R, C) is the sum of the
                 ciphertexts of its rows, and t and m are fresh, uniform scalars
    4. active    for each coordinate: (b + m + e)·G, the decrypted sum plus noise

The passive party subtracts m·G and finds the small discrete logarithm b + e (`discrete_logarithm`).
With several outputs (classes), each has its own pair of roles and session.

**What the passive party learns.** Its view is the public key, ciphertexts and the answer. Under the
decisional Diffie-Hellman assumption the ciphertexts look the same whatever the labels are, and the
answer follows from b + e and its own m. So it learns b + e, which the noise makes differentially
private.

**What the active party learns.** Its view is the request. t and m are uniform and independent, so
the request is a pair of uniform elements for each coordinate, whatever the rows, the ciphertexts
and the public key are: it carries no information, not even for unlimited computing power, and not
even if the ciphertexts were not formed by the protocol. t makes the first element independent of
which rows were added (circuit privacy); m hides the sum. The scalars are pseudorandom (HMAC and
AES), so for a real peer "uniform" holds computationally. All ciphertexts are decoded, also those of
rows that the passive party lacks, so an invalid one stops it in any case.

**What is not covered.** A passive party with modified software can request other linear
combinations of the labels than sums by its coordinates. Their number is that of the coordinates,
and the noise is added to each, but its size is chosen for sums in which a person occurs once per
column. So the bound of differential privacy holds for peers that follow the protocol. An active
party with modified software can encrypt large integers. Then the passive party stops if a sum is
out of range, which reveals that it had one of these rows. Local side channels: the addresses that
the passive party uses depend on its own coordinates.

Secrets are arguments, and everything else is a function of them, of the session and of the
messages: a resumed run sends the same bytes.
"""

from __future__ import annotations

from florist.common.label_aggregate.encryption import CIPHERTEXT_BYTES
from florist.common.label_aggregate.roles import PUBLIC_KEY_BYTES, LabelEncryptor, SumCollector

__all__ = ["CIPHERTEXT_BYTES", "PUBLIC_KEY_BYTES", "LabelEncryptor", "SumCollector"]
