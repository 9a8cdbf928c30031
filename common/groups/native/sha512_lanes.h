/* The SHA-512 compression function on eight blocks at a time, one per 64-bit lane of AVX-512
 * registers. */
#ifndef FLORIST_SHA512_LANES_H
#define FLORIST_SHA512_LANES_H

#include "field25519_ifma.h"
#include "sha512.h"

#ifdef FLORIST_HAVE_IFMA

/* Truth tables of functions of three bits for `ternarylogic`. */
enum { XOR_ALL = 0x96, FIRST_CHOOSES = 0xca, MAJORITY = 0xe8 };

/* Unlike add(), this may wrap around. */
IFMA_INLINE vint sum_modulo_2_64(vint a, vint b)
{
    return _mm512_add_epi64(a, b);
}

/* Overwrites the words of the eight blocks. */
static IFMA_TARGET void sha512_compress_lanes(vint state[8], vint w[16])
{
    vint s[8]; /* a to h; they are not moved: the number of the round determines which is which */
    UNROLL for (int i = 0; i < 8; i++)
        s[i] = state[i];
    for (int start = 0; start < 80; start += 16)
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) {
            if (start > 0) {
                const vint w1 = w[(i + 1) & 15], w14 = w[(i + 14) & 15];
                const vint s0 = _mm512_ternarylogic_epi64(_mm512_ror_epi64(w1, 1), _mm512_ror_epi64(w1, 8),
                                                          _mm512_srli_epi64(w1, 7), XOR_ALL);
                const vint s1 = _mm512_ternarylogic_epi64(_mm512_ror_epi64(w14, 19),
                                                          _mm512_ror_epi64(w14, 61),
                                                          _mm512_srli_epi64(w14, 6), XOR_ALL);
                w[i] = sum_modulo_2_64(sum_modulo_2_64(w[i], w[(i + 9) & 15]), sum_modulo_2_64(s0, s1));
            }
            const vint a = s[-i & 7], b = s[(1 - i) & 7], c = s[(2 - i) & 7];
            const vint e = s[(4 - i) & 7], f = s[(5 - i) & 7], g = s[(6 - i) & 7], h = s[(7 - i) & 7];
            const vint sum1 = _mm512_ternarylogic_epi64(_mm512_ror_epi64(e, 14), _mm512_ror_epi64(e, 18),
                                                        _mm512_ror_epi64(e, 41), XOR_ALL);
            const vint sum0 = _mm512_ternarylogic_epi64(_mm512_ror_epi64(a, 28), _mm512_ror_epi64(a, 34),
                                                        _mm512_ror_epi64(a, 39), XOR_ALL);
            const vint chosen = _mm512_ternarylogic_epi64(e, f, g, FIRST_CHOOSES);
            const vint most = _mm512_ternarylogic_epi64(a, b, c, MAJORITY);
            const vint key = sum_modulo_2_64(VINT(SHA512_ROUND[start + i]), w[i]);
            const vint t1 = sum_modulo_2_64(sum_modulo_2_64(h, key), sum_modulo_2_64(sum1, chosen));
            s[(3 - i) & 7] = sum_modulo_2_64(s[(3 - i) & 7], t1);
            s[(7 - i) & 7] = sum_modulo_2_64(t1, sum_modulo_2_64(sum0, most));
        }
    UNROLL for (int i = 0; i < 8; i++)
        state[i] = sum_modulo_2_64(state[i], s[i]);
}

#endif
#endif
