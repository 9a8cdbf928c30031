/* Arithmetic modulo p = 2^255 - 19 on five 51-bit limbs.
 *
 * Every function takes limbs below 2^54 and multiplication returns limbs below 2^51 + 2^13, so a
 * few additions may follow each other before the next multiplication. No branch and no address
 * depends on a value.
 */
#ifndef FLORIST_FIELD25519_H
#define FLORIST_FIELD25519_H

#include <stdint.h>
#include <string.h>

typedef unsigned __int128 u128;

typedef struct {
    uint64_t limb[5];
} fe;

#define FE_MASK ((UINT64_C(1) << 51) - 1)
#define FE_ONE ((fe){{1, 0, 0, 0, 0}})

static inline uint64_t load_le64(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--)
        word = word << 8 | bytes[i];
    return word;
}

static inline void store_le64(uint8_t *bytes, uint64_t word)
{
    for (int i = 0; i < 8; i++, word >>= 8)
        bytes[i] = (uint8_t)word;
}

/* Loads the low 255 bits of 32 little-endian bytes; the top bit is ignored. */
static inline fe fe_load(const uint8_t bytes[32])
{
    const uint64_t w0 = load_le64(bytes), w1 = load_le64(bytes + 8);
    const uint64_t w2 = load_le64(bytes + 16), w3 = load_le64(bytes + 24);
    return (fe){{
        w0 & FE_MASK,
        (w0 >> 51 | w1 << 13) & FE_MASK,
        (w1 >> 38 | w2 << 26) & FE_MASK,
        (w2 >> 25 | w3 << 39) & FE_MASK,
        (w3 >> 12) & FE_MASK,
    }};
}

/* One carry pass: limbs below 2^63 become limbs below 2^51 + 2^17. */
static inline fe fe_carry(fe a)
{
    for (int i = 0; i < 4; i++) {
        a.limb[i + 1] += a.limb[i] >> 51;
        a.limb[i] &= FE_MASK;
    }
    a.limb[0] += 19 * (a.limb[4] >> 51);
    a.limb[4] &= FE_MASK;
    return a;
}

/* Stores the canonical encoding, below p. */
static inline void fe_store(uint8_t bytes[32], fe a)
{
    a = fe_carry(fe_carry(a));
    /* Now a < 2p. Adding 19 carries out of bit 255 exactly when a >= p. */
    uint64_t quotient = (a.limb[0] + 19) >> 51;
    for (int i = 1; i < 5; i++)
        quotient = (a.limb[i] + quotient) >> 51;
    a.limb[0] += 19 * quotient;
    for (int i = 0; i < 4; i++) {
        a.limb[i + 1] += a.limb[i] >> 51;
        a.limb[i] &= FE_MASK;
    }
    a.limb[4] &= FE_MASK;

    store_le64(bytes, a.limb[0] | a.limb[1] << 51);
    store_le64(bytes + 8, a.limb[1] >> 13 | a.limb[2] << 38);
    store_le64(bytes + 16, a.limb[2] >> 26 | a.limb[3] << 25);
    store_le64(bytes + 24, a.limb[3] >> 39 | a.limb[4] << 12);
}

static inline fe fe_add(fe a, fe b)
{
    for (int i = 0; i < 5; i++)
        a.limb[i] += b.limb[i];
    return a;
}

/* 4p - a, for limbs of `a` below 2^53 - 76. */
static inline fe fe_negate(fe a)
{
    a.limb[0] = (UINT64_C(1) << 53) - 76 - a.limb[0];
    for (int i = 1; i < 5; i++)
        a.limb[i] = (UINT64_C(1) << 53) - 4 - a.limb[i];
    return a;
}

static inline fe fe_fold(u128 r0, u128 r1, u128 r2, u128 r3, u128 r4)
{
    fe out;
    r1 += (uint64_t)(r0 >> 51);
    r2 += (uint64_t)(r1 >> 51);
    r3 += (uint64_t)(r2 >> 51);
    r4 += (uint64_t)(r3 >> 51);
    out.limb[0] = ((uint64_t)r0 & FE_MASK) + 19 * (uint64_t)(r4 >> 51);
    out.limb[1] = ((uint64_t)r1 & FE_MASK) + (out.limb[0] >> 51);
    out.limb[0] &= FE_MASK;
    out.limb[2] = (uint64_t)r2 & FE_MASK;
    out.limb[3] = (uint64_t)r3 & FE_MASK;
    out.limb[4] = (uint64_t)r4 & FE_MASK;
    return out;
}

static inline fe fe_multiply(fe a, fe b)
{
    const uint64_t a0 = a.limb[0], a1 = a.limb[1], a2 = a.limb[2], a3 = a.limb[3], a4 = a.limb[4];
    const uint64_t b0 = b.limb[0], b1 = b.limb[1], b2 = b.limb[2], b3 = b.limb[3], b4 = b.limb[4];
    const uint64_t b1_19 = 19 * b1, b2_19 = 19 * b2, b3_19 = 19 * b3, b4_19 = 19 * b4;
    return fe_fold(
        (u128)a0 * b0 + (u128)a1 * b4_19 + (u128)a2 * b3_19 + (u128)a3 * b2_19 + (u128)a4 * b1_19,
        (u128)a0 * b1 + (u128)a1 * b0 + (u128)a2 * b4_19 + (u128)a3 * b3_19 + (u128)a4 * b2_19,
        (u128)a0 * b2 + (u128)a1 * b1 + (u128)a2 * b0 + (u128)a3 * b4_19 + (u128)a4 * b3_19,
        (u128)a0 * b3 + (u128)a1 * b2 + (u128)a2 * b1 + (u128)a3 * b0 + (u128)a4 * b4_19,
        (u128)a0 * b4 + (u128)a1 * b3 + (u128)a2 * b2 + (u128)a3 * b1 + (u128)a4 * b0);
}

static inline fe fe_square(fe a)
{
    const uint64_t a0 = a.limb[0], a1 = a.limb[1], a2 = a.limb[2], a3 = a.limb[3], a4 = a.limb[4];
    const uint64_t a0_2 = 2 * a0, a1_2 = 2 * a1, a3_19 = 19 * a3, a4_19 = 19 * a4;
    const uint64_t a4_38 = 2 * a4_19;
    return fe_fold(
        (u128)a0 * a0 + (u128)a1 * a4_38 + (u128)(2 * a2) * a3_19,
        (u128)a0_2 * a1 + (u128)a2 * a4_38 + (u128)a3 * a3_19,
        (u128)a0_2 * a2 + (u128)a1 * a1 + (u128)a3 * a4_38,
        (u128)a0_2 * a3 + (u128)a1_2 * a2 + (u128)a4 * a4_19,
        (u128)a0_2 * a4 + (u128)a1_2 * a3 + (u128)a2 * a2);
}

/* Elements per long chain of squarings below: a single one would wait for its own carries, several
 * overlap. */
#define FE_LANES 4

/* Addition chain for a^(2^250 - 1). From x = a^(2^m - 1) and y = a^(2^n - 1), n squarings of x times y
 * give a^(2^(m+n) - 1). Row i computes power i + 1; power 0 is `a` itself. */
#define FE_POWER_STEPS 10
static const struct {
    uint8_t from, squarings, times;
} fe_power_steps[FE_POWER_STEPS] = {
    {0, 1, 0},   /* 1: 2^2 - 1 */
    {1, 2, 1},   /* 2: 2^4 - 1 */
    {2, 1, 0},   /* 3: 2^5 - 1 */
    {3, 5, 3},   /* 4: 2^10 - 1 */
    {4, 10, 4},  /* 5: 2^20 - 1 */
    {5, 5, 3},   /* 6: 2^25 - 1 */
    {6, 25, 6},  /* 7: 2^50 - 1 */
    {7, 50, 7},  /* 8: 2^100 - 1 */
    {8, 25, 6},  /* 9: 2^125 - 1 */
    {9, 125, 9}, /* 10: 2^250 - 1 */
};

/* a^(2^250 - 1) for each lane: the common part of an inversion and of a Legendre symbol. */
static inline void fe_pow_2_250_1(fe out[FE_LANES], const fe a[FE_LANES])
{
    fe powers[FE_POWER_STEPS + 1][FE_LANES];
    memcpy(powers[0], a, sizeof powers[0]);
    for (int step = 0; step < FE_POWER_STEPS; step++) {
        fe x[FE_LANES];
        memcpy(x, powers[fe_power_steps[step].from], sizeof x);
        for (int i = 0; i < fe_power_steps[step].squarings; i++)
            for (int lane = 0; lane < FE_LANES; lane++)
                x[lane] = fe_square(x[lane]);
        for (int lane = 0; lane < FE_LANES; lane++)
            powers[step + 1][lane] =
                fe_multiply(x[lane], powers[fe_power_steps[step].times][lane]);
    }
    memcpy(out, powers[FE_POWER_STEPS], sizeof powers[FE_POWER_STEPS]);
}

/* All ones where a^((p-1)/2) is 1, that is where `a` is a non-zero square; zero elsewhere. */
static inline void fe_is_square(uint64_t out[FE_LANES], const fe a[FE_LANES])
{
    fe x[FE_LANES];
    fe_pow_2_250_1(x, a);
    for (int lane = 0; lane < FE_LANES; lane++) {
        /* (p - 1) / 2 = 2^4 (2^250 - 1) + 6 */
        const fe a2 = fe_square(a[lane]), a6 = fe_multiply(a2, fe_square(a2));
        for (int i = 0; i < 4; i++)
            x[lane] = fe_square(x[lane]);
        uint8_t symbol[32];
        fe_store(symbol, fe_multiply(x[lane], a6));
        /* The symbol is 1, p - 1 or 0; only 1 is odd. */
        out[lane] = (uint64_t)0 - (symbol[0] & 1);
    }
}

/* a^(p-2), for all lanes. */
static inline void fe_invert(fe out[FE_LANES], const fe a[FE_LANES])
{
    fe x[FE_LANES];
    fe_pow_2_250_1(x, a);
    for (int lane = 0; lane < FE_LANES; lane++) {
        /* p - 2 = 2^5 (2^250 - 1) + 11 */
        const fe a2 = fe_square(a[lane]), a8 = fe_square(fe_square(a2));
        const fe a11 = fe_multiply(fe_multiply(a8, a2), a[lane]);
        for (int i = 0; i < 5; i++)
            x[lane] = fe_square(x[lane]);
        out[lane] = fe_multiply(x[lane], a11);
    }
}

/* Curve25519 is v^2 = u^3 + 486662 u^2 + u. */
#define CURVE_A_NUMBER 486662
#define CURVE_A ((fe){{CURVE_A_NUMBER, 0, 0, 0, 0}})

/* u^3 + A u^2 + u: a square on the curve, a non-square on its twist. */
static inline fe curve_right_side(fe u)
{
    const fe inner = fe_add(fe_multiply(u, fe_add(u, CURVE_A)), FE_ONE);
    return fe_multiply(u, inner);
}

#endif
