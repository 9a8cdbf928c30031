#include "sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

int florist_sha_ni_available(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) &&
           __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}

/* The instructions hold the state as two vectors of words, (a b e f) and (c d g h), and do two rounds
 * each; `message` is a ring of the last sixteen words of the message schedule. */
__attribute__((target("sha,sse4.1,ssse3"))) static inline void
compress_block(__m128i *abef, __m128i *cdgh, const uint8_t *block)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i old_abef = *abef, old_cdgh = *cdgh;
    __m128i message[4];
    for (int i = 0; i < 4; i++)
        message[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), big_endian);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __m128i words = message[i & 3];
        const __m128i round = _mm_loadu_si128((const __m128i *)(SHA256_ROUND + 4 * i));
        const __m128i sum = _mm_add_epi32(words, round);
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
        if (i < 12) { /* the words that are used in four steps */
            const __m128i next = message[(i + 1) & 3], last = message[(i + 3) & 3];
            const __m128i partial = _mm_add_epi32(
                _mm_sha256msg1_epu32(words, next), _mm_alignr_epi8(last, message[(i + 2) & 3], 4));
            message[i & 3] = _mm_sha256msg2_epu32(partial, last);
        }
    }
    *abef = _mm_add_epi32(*abef, old_abef);
    *cdgh = _mm_add_epi32(*cdgh, old_cdgh);
}

__attribute__((target("sha,sse4.1,ssse3"))) void
florist_sha256_compress_ni(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    const __m128i dcba = _mm_loadu_si128((const __m128i *)state);
    const __m128i hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; count > 0; count--, blocks += SHA256_BLOCK)
        compress_block(&abef, &cdgh, blocks);
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

#include <stdlib.h>

int florist_sha_ni_available(void)
{
    return 0;
}

void florist_sha256_compress_ni(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    (void)state, (void)blocks, (void)count;
    abort();
}

#endif
