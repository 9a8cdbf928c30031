/* Arithmetic modulo p = 2^255 - 19 on eight numbers at a time, one per 64-bit lane of AVX-512
 * registers, with the multiply-add instructions of IFMA.
 *
 * A number has five limbs of radix 2^51. lo(s, a, b) adds the low 52 bits of the product of the low 52
 * bits of a and b, hi(s, a, b) its high 52 bits. So the limbs of an operand may have 52 bits, one more
 * than the radix; higher bits are ignored.
 *
 * Bounds (each is proved where it arises, and checked at run time when built with
 * -DFLORIST_CHECK_BOUNDS):
 *
 *   vfe       its limbs are the low 52 bits of v[t], and all of v[0], which is below 2^51 + 2^17
 *   mul, sqr  of any vfe               ->  wide, limbs <= 267 * 2^52; with BIASED, <= 571 * 2^52
 *   wide_add  of two wides             ->  wide, limbs below 2^63
 *   wide_sub  BIASED less not biased   ->  wide, limbs in [0, 571 * 2^52]
 *   norm      wide, limbs below 2^63   ->  vfe
 *
 * No branch and no address depends on a value.
 */
#ifndef FLORIST_FIELD25519_IFMA_H
#define FLORIST_FIELD25519_IFMA_H

#include "ifma.h"

#ifdef FLORIST_HAVE_IFMA

#include "field25519.h"

#include <immintrin.h>

#define IFMA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")))
/* Inlined so that loop counters are constants and limbs stay in registers. */
#define IFMA_INLINE static inline __attribute__((always_inline)) IFMA_TARGET
#define UNROLL _Pragma("GCC unroll 8")

#define IFMA_LANES 8

typedef __m512i vint;              /* eight 64-bit integers */
typedef struct { vint v[5]; } vfe;  /* eight numbers, as operands */
typedef struct { vint v[5]; } wide; /* eight sums of products, unsigned 64-bit limbs */

#define VINT(x) _mm512_set1_epi64((long long)(x))
#define VZERO _mm512_setzero_si512()
/* The limbs of p. */
#define P_LIMB(t) ((t) ? FE_MASK : FE_MASK - 18)

#ifdef FLORIST_CHECK_BOUNDS /* slow: a test build that verifies every bound */
#include <assert.h>
#define LOW_52(x) _mm512_and_si512(x, VINT((UINT64_C(1) << 52) - 1))
IFMA_TARGET static void check_below(vint x, u128 bound)
{
    for (int l = 0; l < IFMA_LANES; l++)
        assert((uint64_t)x[l] < bound);
}
IFMA_TARGET static void check_no_wrap(vint sum, vint part)
{
    for (int l = 0; l < IFMA_LANES; l++)
        assert((uint64_t)sum[l] >= (uint64_t)part[l]);
}
#else
#define LOW_52(x) (x)
#define check_below(x, bound) ((void)0)
#define check_no_wrap(sum, part) ((void)0)
#endif

/* ---- one instruction each ------------------------------------------------- */

IFMA_INLINE vint add(vint a, vint b)
{
    const vint sum = _mm512_add_epi64(a, b);
    check_no_wrap(sum, a);
    return sum;
}

IFMA_INLINE vint lo(vint sum, vint a, vint b)
{
    check_below(a, (u128)1 << 52), check_below(b, (u128)1 << 52);
    const vint result = _mm512_madd52lo_epu64(sum, a, b);
    check_no_wrap(result, sum);
    return result;
}

IFMA_INLINE vint hi(vint sum, vint a, vint b)
{
    check_below(a, (u128)1 << 52), check_below(b, (u128)1 << 52);
    const vint result = _mm512_madd52hi_epu64(sum, a, b);
    check_no_wrap(result, sum);
    return result;
}

IFMA_INLINE vint shift_left(vint a, unsigned bits)
{
    check_below(a, (u128)1 << (64 - bits));
    return _mm512_slli_epi64(a, bits);
}

/* ---- products --------------------------------------------------------------- */

/* A product of limbs i and j has its low half in column i + j; its high half has weight
 * 2^52 = 2 * 2^51 and counts twice in the next column. 2^255 = 19 mod p: column t + 5 counts 19 times
 * in column t. An addition costs as much as a product of limbs, so additions are kept to a minimum.
 *
 * BIASED adds a multiple of p that is greater, limb by limb, than any unbiased result, so that an
 * unbiased result can be subtracted without negative limbs. It is the initial value of the
 * accumulators and costs nothing. */
enum { PLAIN = 0, BIASED = 1 };

/* A factor and 19 times the factor, so that five columns remain. Of 19 g[j], which has 57 bits, the
 * low 51 bits, a[j], stay in column t = i + j - 5; the others, b[j], belong to column t + 1, where the
 * same limb i of the other factor is multiplied by a[j + 1], or by g[0] if j = 4. a[1] to a[4] and
 * a_b[2] to a_b[4] are used below. */
typedef struct {
    vfe g;
    vint g0_b4;  /* g[0] + b[4] */
    vint a[5];
    vint a_b[5]; /* a[j] + b[j - 1] */
} prepared;

/* b[j] = 19 g[j] / 2^51 = 38 g[j] / 2^52, below 38. */
IFMA_INLINE prepared prepare(const vfe *g)
{
    prepared r = {.g = *g, .g0_b4 = hi(g->v[0], g->v[4], VINT(38))};
    UNROLL for (int j = 1; j < 5; j++)
        r.a[j] = _mm512_and_si512(lo(VZERO, g->v[j], VINT(19)), VINT(FE_MASK));
    UNROLL for (int j = 2; j < 5; j++)
        r.a_b[j] = hi(r.a[j], g->v[j - 1], VINT(38));
    return r;
}

/* The operand by which limb i of the other factor is multiplied in column t. */
IFMA_INLINE vint factor_of(const prepared *g, int i, int t)
{
    if (i > t)
        return t == 0 ? g->a[5 - i] : g->a_b[t + 5 - i];
    return i == t && t > 0 ? g->g0_b4 : g->g.v[t - i];
}

/* Let L(t) and H(t) be the sums of the low and high halves of column t. Then limb t is
 * L(t) + 2 H(t - 1), and limb 0 is L(0) + 2 * 19 H(4). A half is below 2^52, so limb 0 is at most
 * 5 + 38 * 5 = 195 times that. The bias is 570 p, whose limbs are just below 285 * 2^52. */
IFMA_INLINE wide mul_prepared(const vfe *f, const prepared *g, int biased)
{
    vint high[5];
    wide r;
    UNROLL for (int t = 0; t < 5; t++)
        high[t] = !biased ? VZERO : t < 4 ? VINT(285 * P_LIMB(t + 1)) : VINT(15 * P_LIMB(0));
    UNROLL for (int i = 0; i < 5; i++)
        UNROLL for (int t = 0; t < 5; t++)
            high[t] = hi(high[t], f->v[i], factor_of(g, i, t));
    r.v[0] = add(add(add(high[4], high[4]), high[4]), shift_left(high[4], 4));
    UNROLL for (int t = 1; t < 5; t++)
        r.v[t] = high[t - 1];
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = add(r.v[t], r.v[t]);
    UNROLL for (int i = 0; i < 5; i++)
        UNROLL for (int t = 0; t < 5; t++)
            r.v[t] = lo(r.v[t], f->v[i], factor_of(g, i, t));
    UNROLL for (int t = 0; t < 5; t++)
        check_below(r.v[t], ((u128)(195 + (biased ? 285 : 0)) << 52) + 1);
    return r;
}

IFMA_INLINE wide mul(const vfe *f, const vfe *g, int biased)
{
    const prepared factor = prepare(g);
    return mul_prepared(f, &factor, biased);
}

/* f * f, with each product of two different limbs computed once and counted twice. A limb has no spare
 * bit to be doubled beforehand, so columns are doubled: with c(t) = L(t + 5) + 2 H(t + 4), limb t is
 *
 *     L(t) + 2 H(t - 1) + 19 c(t)
 *
 * in one accumulator. Squares of limbs have their low halves in even columns and their high halves in
 * odd ones. So an odd column can be doubled as a whole at the end, and in an even one only the low
 * half of a square is added after that. c[0], c[2] and c[4], of odd columns, are half of c(t), which
 * the last doubling of the limb corrects: 2 (2 c + 16 c + c). c[1] and c[3] are all of c(t):
 * 2 * 2 c + 16 c - c.
 *
 * Limb 0 is the largest: one half of its own and, from column 5, four low halves and twice five high
 * ones, 1 + 19 * 14 = 267 in total. The bias is 608 p, whose limbs are just below 304 * 2^52. */
IFMA_INLINE wide sqr(const vfe *f, int biased)
{
    vint c[5];
    wide r;
    UNROLL for (int t = 0; t < 5; t++) /* 19 * 4 * 8 = 2 * 19 * 2 * 8 = 2 * 19 * 16 = 608 */
        c[t] = biased ? VINT((t < 4 ? 8 : 16) * P_LIMB(t)) : VZERO;
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = i + 1 > 4 - i ? i + 1 : 4 - i; j < 5; j++)
            c[i + j - 4] = hi(c[i + j - 4], f->v[i], f->v[j]);
    UNROLL for (int t = 0; t < 3; t++)
        c[t] = add(c[t], c[t]);
    UNROLL for (int i = 2; i < 5; i++)
        c[2 * i - 4] = hi(c[2 * i - 4], f->v[i], f->v[i]);
    UNROLL for (int i = 1; i < 4; i++)
        UNROLL for (int j = i + 1 > 5 - i ? i + 1 : 5 - i; j < 5; j++)
            c[i + j - 5] = lo(c[i + j - 5], f->v[i], f->v[j]);
    c[1] = add(c[1], c[1]);
    c[3] = shift_left(c[3], 2); /* both doublings at once */
    UNROLL for (int i = 3; i < 5; i++)
        c[2 * i - 5] = lo(c[2 * i - 5], f->v[i], f->v[i]);

    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = c[t];
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int j = i + 1; j < 4 - i; j++)
            r.v[i + j + 1] = hi(r.v[i + j + 1], f->v[i], f->v[j]);
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = add(r.v[t], r.v[t]);
    UNROLL for (int t = 0; t < 5; t += 2)
        r.v[t] = add(add(r.v[t], c[t]), shift_left(c[t], 4));
    UNROLL for (int i = 0; i < 2; i++)
        r.v[2 * i + 1] = hi(r.v[2 * i + 1], f->v[i], f->v[i]);
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int j = i + 1; j < 5 - i; j++)
            r.v[i + j] = lo(r.v[i + j], f->v[i], f->v[j]);
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = add(r.v[t], r.v[t]);
    UNROLL for (int t = 1; t < 5; t += 2)
        r.v[t] = _mm512_sub_epi64(add(r.v[t], shift_left(c[t], 4)), c[t]);
    UNROLL for (int i = 0; i < 3; i++)
        r.v[2 * i] = lo(r.v[2 * i], f->v[i], f->v[i]);
    UNROLL for (int t = 0; t < 5; t++)
        check_below(r.v[t], ((u128)(267 + (biased ? 304 : 0)) << 52) + 1);
    return r;
}

/* w + small * e, for small < 2^19, so that high halves are below 2^19. They have weight 2, so they are
 * added twice, which costs no more than doubling them. */
IFMA_INLINE wide add_small_multiple(wide w, const vfe *e, unsigned small)
{
    const vint factor = VINT(small), wrapped = hi(VZERO, e->v[4], factor);
    UNROLL for (int t = 0; t < 5; t++)
        w.v[t] = lo(w.v[t], e->v[t], factor);
    UNROLL for (int again = 0; again < 2; again++)
        UNROLL for (int t = 1; t < 5; t++)
            w.v[t] = hi(w.v[t], e->v[t - 1], factor);
    w.v[0] = lo(w.v[0], wrapped, VINT(2 * 19));
    return w;
}

/* ---- sums, carries ------------------------------------------------------- */

IFMA_INLINE wide wide_add(wide a, wide b)
{
    UNROLL for (int t = 0; t < 5; t++)
        a.v[t] = add(a.v[t], b.v[t]);
    return a;
}

IFMA_INLINE wide wide_sub(wide a, wide b)
{
    UNROLL for (int t = 0; t < 5; t++) {
        check_no_wrap(a.v[t], b.v[t]);
        a.v[t] = _mm512_sub_epi64(a.v[t], b.v[t]);
    }
    return a;
}

IFMA_INLINE wide wide_add_one(wide a)
{
    a.v[0] = add(a.v[0], VINT(1));
    return a;
}

/* Carries. Limbs 1, 2 and 4 carry the bits above their 52 bits, which have weight 2 in the next limb,
 * and need no mask, because those bits are not read again. Limbs 0 and 3, where the two carry chains
 * start and end, carry the bits above 51 bits. They receive at most 2 * 2^11 + 2, times 19 for limb 0,
 * so they stay below 2^51 + 2^17. */
IFMA_INLINE vfe norm(wide w)
{
    const vint mask = VINT(FE_MASK), two = VINT(2);
    vfe y;
    UNROLL for (int t = 0; t < 5; t++)
        check_below(w.v[t], (u128)1 << 63);
    y.v[1] = add(w.v[1], _mm512_srli_epi64(w.v[0], 51));
    y.v[4] = add(w.v[4], _mm512_srli_epi64(w.v[3], 51));
    y.v[2] = lo(w.v[2], _mm512_srli_epi64(y.v[1], 52), two);
    y.v[0] = lo(_mm512_and_si512(w.v[0], mask), _mm512_srli_epi64(y.v[4], 52), VINT(2 * 19));
    y.v[3] = lo(_mm512_and_si512(w.v[3], mask), _mm512_srli_epi64(y.v[2], 52), two);
    check_below(y.v[0], ((u128)1 << 51) + (1 << 17)), check_below(y.v[3], (u128)1 << 52);
    y.v[1] = LOW_52(y.v[1]), y.v[2] = LOW_52(y.v[2]), y.v[4] = LOW_52(y.v[4]);
    return y;
}

IFMA_INLINE vfe vfe_mul(const vfe *f, const vfe *g)
{
    return norm(mul(f, g, PLAIN));
}

IFMA_INLINE vfe vfe_sqr(const vfe *f)
{
    return norm(sqr(f, PLAIN));
}

IFMA_INLINE vfe vfe_small(unsigned number)
{
    return (vfe){{VINT(number), VZERO, VZERO, VZERO, VZERO}};
}

/* Selects b where the mask is set, else a. */
IFMA_INLINE vfe vfe_choose(const vfe *a, const vfe *b, __mmask8 mask)
{
    vfe r;
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = _mm512_mask_mov_epi64(a->v[t], mask, b->v[t]);
    return r;
}

/* ---- to and from bytes ------------------------------------------------------ */

typedef struct { vint w[4]; } words; /* eight numbers of 32 bytes, little-endian */

/* Loads the first `lanes` (at most 8) numbers at `bytes`; 0 in the other lanes. */
IFMA_INLINE words words_load(const uint8_t *bytes, __mmask8 lanes)
{
    const vint index = _mm512_set_epi64(28, 24, 20, 16, 12, 8, 4, 0);
    words r;
    UNROLL for (int i = 0; i < 4; i++)
        r.w[i] = _mm512_mask_i64gather_epi64(VZERO, lanes, index, bytes + 8 * i, 8);
    return r;
}

IFMA_INLINE void words_store(uint8_t *bytes, __mmask8 lanes, words a)
{
    const vint index = _mm512_set_epi64(28, 24, 20, 16, 12, 8, 4, 0);
    UNROLL for (int i = 0; i < 4; i++)
        _mm512_mask_i64scatter_epi64(bytes + 8 * i, lanes, index, a.w[i], 8);
}

/* The number of lanes in use when `count` numbers remain. */
IFMA_INLINE __mmask8 lanes_of(size_t count)
{
    return count < IFMA_LANES ? (__mmask8)((1u << count) - 1) : 0xff;
}

/* Bits `shift` to shift + 50 of the number with the words low and high. */
IFMA_INLINE vint limb_of(vint low, vint high, unsigned shift)
{
    const vint joined = _mm512_or_si512(_mm512_srli_epi64(low, shift), _mm512_slli_epi64(high, 64 - shift));
    return _mm512_and_si512(joined, VINT(FE_MASK));
}

/* Loads the low 255 bits of each number; the top bit is ignored. */
IFMA_INLINE vfe from_words(words a)
{
    return (vfe){{
        _mm512_and_si512(a.w[0], VINT(FE_MASK)),
        limb_of(a.w[0], a.w[1], 51),
        limb_of(a.w[1], a.w[2], 38),
        limb_of(a.w[2], a.w[3], 25),
        limb_of(a.w[3], VZERO, 12),
    }};
}

/* Stores the canonical encoding, below p; see fe_store. */
IFMA_INLINE words to_words(const vfe *number)
{
    const vint mask = VINT(FE_MASK);
    vint a[5];
    UNROLL for (int t = 0; t < 5; t++)
        a[t] = _mm512_and_si512(number->v[t], VINT((UINT64_C(1) << 52) - 1));
    UNROLL for (int pass = 0; pass < 3; pass++) {
        if (pass == 2) {
            /* Now a < 2p. Adding 19 carries out of bit 255 exactly when a >= p. */
            vint quotient = _mm512_srli_epi64(add(a[0], VINT(19)), 51);
            UNROLL for (int t = 1; t < 5; t++)
                quotient = _mm512_srli_epi64(add(a[t], quotient), 51);
            a[0] = lo(a[0], quotient, VINT(19));
        }
        UNROLL for (int t = 0; t < 4; t++) {
            a[t + 1] = add(a[t + 1], _mm512_srli_epi64(a[t], 51));
            a[t] = _mm512_and_si512(a[t], mask);
        }
        if (pass < 2)
            a[0] = lo(a[0], _mm512_srli_epi64(a[4], 51), VINT(19));
        a[4] = _mm512_and_si512(a[4], mask);
    }
    words r;
    UNROLL for (int i = 0; i < 4; i++)
        r.w[i] = _mm512_or_si512(_mm512_srli_epi64(a[i], 13 * i), _mm512_slli_epi64(a[i + 1], 51 - 13 * i));
    return r;
}

/* A mask of the lanes that are zero. */
IFMA_INLINE __mmask8 words_zero(words a)
{
    const vint any = _mm512_or_si512(_mm512_or_si512(a.w[0], a.w[1]), _mm512_or_si512(a.w[2], a.w[3]));
    return _mm512_cmpeq_epi64_mask(any, VZERO);
}

/* ---- powers --------------------------------------------------------------- */

/* Vectors per long chain of squarings: a single one would wait for its own carries. */
#define IFMA_GROUP 4

/* a^(2^250 - 1) for each of n <= IFMA_GROUP vectors; see fe_pow_2_250_1. */
IFMA_INLINE void vfe_pow_2_250_1(vfe *out, const vfe *a, int n)
{
    vfe powers[FE_POWER_STEPS + 1][IFMA_GROUP];
    UNROLL for (int k = 0; k < n; k++)
        powers[0][k] = a[k];
    for (int step = 0; step < FE_POWER_STEPS; step++) {
        vfe x[IFMA_GROUP];
        UNROLL for (int k = 0; k < n; k++)
            x[k] = powers[fe_power_steps[step].from][k];
        for (int i = 0; i < fe_power_steps[step].squarings; i++)
            UNROLL for (int k = 0; k < n; k++)
                x[k] = vfe_sqr(&x[k]);
        UNROLL for (int k = 0; k < n; k++)
            powers[step + 1][k] = vfe_mul(&x[k], &powers[fe_power_steps[step].times][k]);
    }
    UNROLL for (int k = 0; k < n; k++)
        out[k] = powers[FE_POWER_STEPS][k];
}

/* A mask of the lanes of each vector that are non-zero squares; see fe_is_square. */
static inline IFMA_TARGET void vfe_is_square(__mmask8 out[IFMA_GROUP], const vfe a[IFMA_GROUP])
{
    vfe x[IFMA_GROUP];
    vfe_pow_2_250_1(x, a, IFMA_GROUP);
    for (int k = 0; k < IFMA_GROUP; k++) {
        const vfe a2 = vfe_sqr(&a[k]), a4 = vfe_sqr(&a2), a6 = vfe_mul(&a2, &a4);
        for (int i = 0; i < 4; i++)
            x[k] = vfe_sqr(&x[k]);
        x[k] = vfe_mul(&x[k], &a6);
        /* The symbol is 1, p - 1 or 0; only 1 is odd. */
        out[k] = _mm512_test_epi64_mask(to_words(&x[k]).w[0], VINT(1));
    }
}

/* a^(p-2); see fe_invert. */
static inline IFMA_TARGET vfe vfe_invert(const vfe *a)
{
    vfe x;
    vfe_pow_2_250_1(&x, a, 1);
    const vfe a2 = vfe_sqr(a), a4 = vfe_sqr(&a2), a8 = vfe_sqr(&a4), a10 = vfe_mul(&a8, &a2);
    const vfe a11 = vfe_mul(&a10, a);
    for (int i = 0; i < 5; i++)
        x = vfe_sqr(&x);
    return vfe_mul(&x, &a11);
}

/* out[i] = 1 / a[i] for i < n, with one inversion (Montgomery's trick): multiply all numbers, invert
 * the product, and remove the factors again, each lane separately. No number may be zero. */
static inline IFMA_TARGET void vfe_invert_all(vfe *out, const vfe *a, size_t n)
{
    vfe product = vfe_small(1);
    for (size_t i = 0; i < n; i++) {
        out[i] = product;
        product = vfe_mul(&product, &a[i]);
    }
    vfe inverse = vfe_invert(&product);
    for (size_t i = n; i-- > 0;) {
        out[i] = vfe_mul(&out[i], &inverse);
        inverse = vfe_mul(&inverse, &a[i]);
    }
}

/* u^3 + A u^2 + u; see curve_right_side. */
IFMA_INLINE vfe vfe_right_side(const vfe *u)
{
    const vfe inner = norm(wide_add_one(add_small_multiple(sqr(u, PLAIN), u, CURVE_A_NUMBER)));
    return vfe_mul(u, &inner);
}

#endif
#endif
