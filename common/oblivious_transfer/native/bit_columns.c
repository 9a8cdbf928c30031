#include "bit_columns.h"

#include "aes_ni.h"

#ifdef FLORIST_HAVE_AES_NI

#include <string.h>

#define BLOCK 16
#define WITH_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define PCLMUL_INLINE static inline __attribute__((always_inline, target("pclmul,sse4.1")))

/* Transposes 16 times 16 bytes. Each step interleaves the upper half of the vectors with the lower. */
static inline void transpose_bytes(__m128i vectors[16])
{
    for (int step = 0; step < 4; step++) {
        __m128i next[16];
        for (int i = 0; i < 8; i++) {
            next[2 * i] = _mm_unpacklo_epi8(vectors[i], vectors[i + 8]);
            next[2 * i + 1] = _mm_unpackhi_epi8(vectors[i], vectors[i + 8]);
        }
        memcpy(vectors, next, sizeof next);
    }
}

void florist_transpose_bits(uint8_t *rows, const uint8_t *columns, size_t stride, size_t blocks)
{
    for (size_t block = 0; block < blocks; block++)
        for (size_t first = 0; first < BIT_COLUMNS; first += 16) {
            const uint8_t *from = columns + stride * first + BLOCK * block;
            uint8_t *to = rows + BLOCK * BIT_COLUMNS * block + first / 8;
            __m128i vectors[16];
            for (size_t i = 0; i < 16; i++)
                vectors[i] = _mm_loadu_si128((const __m128i *)(from + stride * i));
            transpose_bytes(vectors);
            for (size_t byte = 0; byte < 16; byte++) /* eight rows of 16 columns */
                for (size_t bit = 8; bit-- > 0;) {
                    const uint16_t bits = (uint16_t)_mm_movemask_epi8(vectors[byte]);
                    memcpy(to + BLOCK * (8 * byte + bit), &bits, sizeof bits);
                    vectors[byte] = _mm_add_epi8(vectors[byte], vectors[byte]);
                }
        }
}

/* Blocks whose products are added before one reduction. */
#define POWERS 8

/* A sum of products of 128-bit polynomials: low + middle · x^64 + high · x^128. */
typedef struct {
    __m128i low, middle, high;
} product_sum;

PCLMUL_INLINE void add_product(product_sum *sum, __m128i a, __m128i b)
{
    sum->low = _mm_xor_si128(sum->low, _mm_clmulepi64_si128(a, b, 0x00));
    sum->high = _mm_xor_si128(sum->high, _mm_clmulepi64_si128(a, b, 0x11));
    sum->middle = _mm_xor_si128(sum->middle, _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01),
                                                           _mm_clmulepi64_si128(a, b, 0x10)));
}

/* Reduces modulo x^128 + x^7 + x^2 + x + 1, that is, replaces x^128 by 0x87. */
PCLMUL_INLINE __m128i reduced(const product_sum *sum)
{
    const __m128i modulus = _mm_set_epi64x(0, 0x87);
    __m128i low = _mm_xor_si128(sum->low, _mm_slli_si128(sum->middle, 8));
    __m128i high = _mm_xor_si128(sum->high, _mm_srli_si128(sum->middle, 8));
    const __m128i upper = _mm_clmulepi64_si128(high, modulus, 0x01);
    low = _mm_xor_si128(low, _mm_slli_si128(upper, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(upper, 8));
    return _mm_xor_si128(low, _mm_clmulepi64_si128(high, modulus, 0x00));
}

PCLMUL_INLINE __m128i multiplied(__m128i a, __m128i b)
{
    product_sum sum = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    add_product(&sum, a, b);
    return reduced(&sum);
}

/* Returns (value + block 0) · point^count + block 1 · point^(count - 1) + ... + the last · point. */
PCLMUL_INLINE __m128i absorbed(__m128i value, const uint8_t *blocks, size_t count,
                               const __m128i powers[POWERS + 1])
{
    product_sum sum = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    for (size_t i = 0; i < count; i++) {
        const __m128i block = _mm_loadu_si128((const __m128i *)(blocks + BLOCK * i));
        add_product(&sum, _mm_xor_si128(block, value), powers[count - i]);
        value = _mm_setzero_si128();
    }
    return reduced(&sum);
}

WITH_PCLMUL void florist_column_hashes(uint8_t *out, const uint8_t *columns, size_t count,
                                       size_t stride, size_t blocks, const uint8_t point[16])
{
    __m128i powers[POWERS + 1];
    powers[0] = _mm_set_epi64x(0, 1);
    powers[1] = _mm_loadu_si128((const __m128i *)point);
    for (int i = 2; i <= POWERS; i++)
        powers[i] = multiplied(powers[i - 1], powers[1]);
    for (size_t column = 0; column < count; column++) {
        const uint8_t *from = columns + stride * column;
        __m128i value = _mm_setzero_si128();
        size_t at = blocks % POWERS;
        if (at)
            value = absorbed(value, from, at, powers);
        for (; at < blocks; at += POWERS)
            value = absorbed(value, from + BLOCK * at, POWERS, powers);
        _mm_storeu_si128((__m128i *)(out + BLOCK * column), value);
    }
}

#else

#include <stdlib.h>

void florist_transpose_bits(uint8_t *rows, const uint8_t *columns, size_t stride, size_t blocks)
{
    (void)rows, (void)columns, (void)stride, (void)blocks;
    abort();
}

void florist_column_hashes(uint8_t *out, const uint8_t *columns, size_t count, size_t stride,
                           size_t blocks, const uint8_t point[16])
{
    (void)out, (void)columns, (void)count, (void)stride, (void)blocks, (void)point;
    abort();
}

#endif
