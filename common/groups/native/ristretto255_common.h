/* What the portable and the vector code of ristretto255 share: constants, and scalars modulo the
 * group's order l. No branch and no address depends on a value. */
#ifndef FLORIST_RISTRETTO255_COMMON_H
#define FLORIST_RISTRETTO255_COMMON_H

#include "field25519.h"
#include "ristretto255.h"

/* edwards25519 is -x^2 + y^2 = 1 + d x^2 y^2. */
static const fe EDWARDS_D = {
    {0x34dca135978a3, 0x1a8283b156ebd, 0x5e7a26001c029, 0x739c663a03cbb, 0x52036cee2b6ff}};
static const fe EDWARDS_2D = {
    {0x69b9426b2f159, 0x35050762add7a, 0x3cf44c0038052, 0x6738cc7407977, 0x2406d9dc56dff}};
static const fe SQRT_M1 = {
    {0x61b274a0ea0b0, 0x0d5a5fc8f189d, 0x7ef5e9cbd0c60, 0x78595a6804c9e, 0x2b8324804fc1d}};
static const fe INVSQRT_A_MINUS_D = {
    {0x0fdaa805d40ea, 0x2eb482e57d339, 0x07610274bc58, 0x6510b613dc8ff, 0x786c8905cfaff}};

/* The compiler does not know that a mask is 0 or all ones, so it cannot make it a branch. */
static inline uint64_t opaque(uint64_t mask)
{
    __asm__("" : "+r"(mask));
    return mask;
}

typedef struct {
    uint64_t word[4];
} scalar;

static const scalar ORDER = {{0x5812631a5cf5d3ed, 0x14def9dea2f79cd6, 0, 0x1000000000000000}};
/* -1/l modulo 2^64; 2^256 and 2^512 modulo l. */
#define ORDER_FACTOR UINT64_C(0xd2b51da312547e1b)
static const scalar TWO_256 = {
    {0xd6ec31748d98951d, 0xc6ef5bf4737dcf70, 0xfffffffffffffffe, 0x0fffffffffffffff}};
static const scalar TWO_512 = {
    {0xa40611e3449c0f01, 0xd00e1ba768859347, 0xceec73d217f5be65, 0x0399411b7c309a3d}};

static inline scalar scalar_load(const uint8_t bytes[SCALAR_BYTES])
{
    scalar a;
    for (int i = 0; i < 4; i++)
        a.word[i] = load_le64(bytes + 8 * i);
    return a;
}

static inline void scalar_store(uint8_t bytes[SCALAR_BYTES], scalar a)
{
    for (int i = 0; i < 4; i++)
        store_le64(bytes + 8 * i, a.word[i]);
}

/* a mod l, for a < 2l. */
static inline scalar scalar_subtract_order(scalar a)
{
    scalar less;
    uint64_t borrow = 0;
    for (int i = 0; i < 4; i++) {
        const u128 difference = (u128)a.word[i] - ORDER.word[i] - borrow;
        less.word[i] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
    const uint64_t keep = opaque((uint64_t)0 - borrow);
    for (int i = 0; i < 4; i++)
        a.word[i] = (a.word[i] & keep) | (less.word[i] & ~keep);
    return a;
}

/* a + b mod l, for a and b below l. */
static inline scalar scalar_add(scalar a, scalar b)
{
    u128 sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (u128)a.word[i] + b.word[i];
        a.word[i] = (uint64_t)sum;
        sum >>= 64;
    }
    return scalar_subtract_order(a);
}

/* a * b / 2^256 mod l (Montgomery), for any a and for b < l. */
static inline scalar scalar_montgomery(scalar a, scalar b)
{
    uint64_t sum[6] = {0};
    for (int i = 0; i < 4; i++) {
        u128 carry = 0;
        for (int j = 0; j < 4; j++) {
            carry += (u128)a.word[i] * b.word[j] + sum[j];
            sum[j] = (uint64_t)carry;
            carry >>= 64;
        }
        carry += sum[4];
        sum[4] = (uint64_t)carry;
        sum[5] = (uint64_t)(carry >> 64);
        const uint64_t quotient = sum[0] * ORDER_FACTOR;
        carry = ((u128)quotient * ORDER.word[0] + sum[0]) >> 64;
        for (int j = 1; j < 4; j++) {
            carry += (u128)quotient * ORDER.word[j] + sum[j];
            sum[j - 1] = (uint64_t)carry;
            carry >>= 64;
        }
        carry += sum[4];
        sum[3] = (uint64_t)carry;
        sum[4] = sum[5] + (uint64_t)(carry >> 64);
    }
    return scalar_subtract_order((scalar){{sum[0], sum[1], sum[2], sum[3]}});
}

static inline scalar scalar_reduce(scalar a)
{
    return scalar_montgomery(a, TWO_256);
}

/* l + value if it is negative, else value. */
static inline scalar scalar_of(int64_t value)
{
    const uint64_t sign = opaque((uint64_t)0 - ((uint64_t)value >> 63));
    scalar a;
    u128 sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (u128)(i == 0 ? (uint64_t)value : sign) + (ORDER.word[i] & sign);
        a.word[i] = (uint64_t)sum;
        sum >>= 64;
    }
    return a;
}

/* The scalar modulo l in base 16, with digits from -8 to 7 (the last from 0 to 2), the lowest first. */
static inline void digits_of(int8_t digits[TABLE_ROWS], const uint8_t bytes[SCALAR_BYTES])
{
    uint8_t reduced[SCALAR_BYTES];
    scalar_store(reduced, scalar_reduce(scalar_load(bytes)));
    int carry = 0;
    for (int i = 0; i < TABLE_ROWS; i++) {
        const int digit = (reduced[i / 2] >> 4 * (i % 2) & 15) + carry;
        carry = (digit + 8) >> 4;
        digits[i] = (int8_t)(digit - 16 * carry);
    }
}

/* Whether all rows are below pair_count and all coordinates below sum_count. */
static inline int places_fit(const int64_t *rows, size_t count, size_t pair_count,
                             const int32_t *coordinates, size_t columns, size_t sum_count)
{
    int fit = 1;
    for (size_t i = 0; i < count; i++)
        fit &= rows[i] >= 0 && (uint64_t)rows[i] < pair_count;
    for (size_t i = 0; i < count * columns; i++)
        fit &= coordinates[i] >= 0 && (uint64_t)coordinates[i] < sum_count;
    return fit;
}

#endif
