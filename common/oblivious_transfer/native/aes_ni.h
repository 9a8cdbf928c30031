/* AES-128 by the instructions of x86, and whether this build and this CPU have them. */
#ifndef FLORIST_AES_NI_H
#define FLORIST_AES_NI_H

#if defined(__x86_64__) && defined(__GNUC__)
#define FLORIST_HAVE_AES_NI
#endif

#define AES_BLOCK 16
#define AES_ROUNDS 10

/* 1 if this build and this CPU support the functions of this folder, else 0. If they do not, do not
 * call those functions: they abort or contain illegal instructions. */
static inline int florist_aes_ni_available(void)
{
#ifdef FLORIST_HAVE_AES_NI
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("sse4.1");
#else
    return 0;
#endif
}

#ifdef FLORIST_HAVE_AES_NI

#include <immintrin.h>
#include <stdint.h>

#define WITH_AES __attribute__((target("aes,sse4.1")))
/* Inlined, so that loops over a constant number of blocks are unrolled into registers. */
#define AES_INLINE static inline __attribute__((always_inline, target("aes,sse4.1")))

typedef struct {
    __m128i round[AES_ROUNDS + 1];
} aes_key;

AES_INLINE __m128i aes_load(const uint8_t *block)
{
    return _mm_loadu_si128((const __m128i *)block);
}

AES_INLINE void aes_store(uint8_t *block, __m128i value)
{
    _mm_storeu_si128((__m128i *)block, value);
}

AES_INLINE __m128i aes_next_round_key(__m128i key, __m128i assist)
{
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
    return _mm_xor_si128(key, _mm_shuffle_epi32(assist, 0xff));
}

#define AES_EXPAND(i, constant)                                                                    \
    key->round[i] = aes_next_round_key(key->round[(i) - 1],                                        \
                                       _mm_aeskeygenassist_si128(key->round[(i) - 1], constant))

AES_INLINE void aes_expand_key(aes_key *key, const uint8_t bytes[AES_BLOCK])
{
    key->round[0] = aes_load(bytes);
    AES_EXPAND(1, 0x01);
    AES_EXPAND(2, 0x02);
    AES_EXPAND(3, 0x04);
    AES_EXPAND(4, 0x08);
    AES_EXPAND(5, 0x10);
    AES_EXPAND(6, 0x20);
    AES_EXPAND(7, 0x40);
    AES_EXPAND(8, 0x80);
    AES_EXPAND(9, 0x1b);
    AES_EXPAND(10, 0x36);
}

/* Encrypts `count` blocks in place; `count` is a constant. Each round waits for the one before it,
 * and the rounds of the other blocks fill that time. */
AES_INLINE void aes_encrypt(const aes_key *key, __m128i *blocks, const int count)
{
    for (int i = 0; i < count; i++)
        blocks[i] = _mm_xor_si128(blocks[i], key->round[0]);
    for (int round = 1; round < AES_ROUNDS; round++)
        for (int i = 0; i < count; i++)
            blocks[i] = _mm_aesenc_si128(blocks[i], key->round[round]);
    for (int i = 0; i < count; i++)
        blocks[i] = _mm_aesenclast_si128(blocks[i], key->round[AES_ROUNDS]);
}

#endif
#endif
