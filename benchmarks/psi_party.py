"""One party of SecretFlow's ECDH-PSI, for `against_psi.py`.

It runs in an interpreter with `spu` installed, and imports nothing of FLORIST.
"""

from __future__ import annotations

import sys

from spu import psi
from spu.libspu import link


def main(curve: str, column: str, rank: str, table: str, result: str, *hosts: str) -> None:
    """Intersect with the other party; both get the result, as vertical learning requires."""
    parties = link.Desc()
    for number, host in enumerate(hosts):
        parties.add_party(f"party-{number}", host)
    context = link.create_brpc(parties, int(rank))
    psi.psi_execute(
        psi.PsiExecuteConfig(
            psi.PsiProtocolConfig(
                psi.PsiProtocol.PROTOCOL_ECDH,
                broadcast_result=True,
                ecdh_params=psi.EcdhParams(psi.parse_curve_type(curve)),
            ),
            psi.InputParams(path=table, selected_keys=[column], keys_unique=True),
            psi.OutputParams(path=result),
        ),
        context,
    )
    context.stop_link()


if __name__ == "__main__":
    main(*sys.argv[1:])
