#include "sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

/* Messages at a time: each round waits for the one before it, and the rounds of a second message
 * fill that time. Four are no faster, as they do not fit into the registers. */
#define LANES 2

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

int florist_sha_ni_available(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) &&
           __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}

/* One message. The instructions hold the state as two vectors of words, (a b e f) and (c d g h), and
 * do two rounds each; `message` is a ring of the last sixteen words of the message schedule. */
typedef struct {
    __m128i abef, cdgh, message[4];
} sha_lane;

WITH_SHA static inline void load_state(sha_lane *lane, const uint32_t state[8])
{
    const __m128i dcba = _mm_loadu_si128((const __m128i *)state);
    const __m128i hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    lane->abef = _mm_alignr_epi8(cdab, efgh, 8);
    lane->cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
}

WITH_SHA static inline void load_block(sha_lane *lane, const uint8_t *block)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    for (int i = 0; i < 4; i++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * i));
        lane->message[i] = _mm_shuffle_epi8(bytes, big_endian);
    }
}

/* Rounds 4i to 4i + 3. */
WITH_SHA static inline void four_rounds(sha_lane *lane, int i)
{
    __m128i *message = lane->message;
    const __m128i words = message[i & 3];
    const __m128i round = _mm_loadu_si128((const __m128i *)(SHA256_ROUND + 4 * i));
    const __m128i sum = _mm_add_epi32(words, round);
    lane->cdgh = _mm_sha256rnds2_epu32(lane->cdgh, lane->abef, sum);
    lane->abef = _mm_sha256rnds2_epu32(lane->abef, lane->cdgh, _mm_shuffle_epi32(sum, 0x0e));
    if (i < 12) { /* the words that are used in four steps */
        const __m128i next = message[(i + 1) & 3], last = message[(i + 3) & 3];
        const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(words, next),
                                              _mm_alignr_epi8(last, message[(i + 2) & 3], 4));
        message[i & 3] = _mm_sha256msg2_epu32(partial, last);
    }
}

WITH_SHA static inline void add_to_state(uint32_t state[8], const sha_lane *lane)
{
    const __m128i feba = _mm_shuffle_epi32(lane->abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(lane->cdgh, 0xb1);
    __m128i *dcba = (__m128i *)state, *hgfe = (__m128i *)(state + 4);
    _mm_storeu_si128(dcba, _mm_add_epi32(_mm_loadu_si128(dcba), _mm_blend_epi16(feba, dchg, 0xf0)));
    _mm_storeu_si128(hgfe, _mm_add_epi32(_mm_loadu_si128(hgfe), _mm_alignr_epi8(dchg, feba, 8)));
}

/* At most LANES messages; a constant `count`, with all loops unrolled, keeps them in registers. */
WITH_SHA static inline void compress_lanes(uint32_t (*states)[8], const uint8_t *blocks, int count)
{
    sha_lane lanes[LANES];
#pragma GCC unroll 2
    for (int k = 0; k < count; k++) {
        load_state(lanes + k, states[k]);
        load_block(lanes + k, blocks + SHA256_BLOCK * k);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
#pragma GCC unroll 2
        for (int k = 0; k < count; k++)
            four_rounds(lanes + k, i);
#pragma GCC unroll 2
    for (int k = 0; k < count; k++)
        add_to_state(states[k], lanes + k);
}

WITH_SHA void florist_sha256_compress_ni(uint32_t (*states)[8], const uint8_t *blocks, size_t count)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        compress_lanes(states + i, blocks + SHA256_BLOCK * i, LANES);
    for (; i < count; i++)
        compress_lanes(states + i, blocks + SHA256_BLOCK * i, 1);
}

#else

#include <stdlib.h>

int florist_sha_ni_available(void)
{
    return 0;
}

void florist_sha256_compress_ni(uint32_t (*states)[8], const uint8_t *blocks, size_t count)
{
    (void)states, (void)blocks, (void)count;
    abort();
}

#endif
