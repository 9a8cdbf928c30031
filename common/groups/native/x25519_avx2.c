/* X25519 of many points with one scalar: four Montgomery ladders at a time, one
 * per 64-bit lane of an AVX2 register, then one inversion for a whole block.
 *
 * Field elements mod p = 2^255 - 19 have five limbs of radix 2^51, stored as
 * DOUBLES with integer values. AVX2 has no 64x64-bit multiplication, but two
 * fused multiply-adds give both halves of a 51x51-bit product exactly, so 25
 * products replace 100 with the 32-bit vpmuludq (see prod() below).
 *
 * Everything relies on these bounds (each is proved where it is used, and checked
 * at run time when built with -DFLORIST_CHECK_BOUNDS):
 *
 *   vfe, "normal"      |limb| <= B = 2^50 + 2^14             from norm(), choose()
 *   vfe, "loose"       |limb| <= 2B                          from vfe_sub()
 *   mul(f, g)          f normal or loose, g normal  ->  wide, |limb| < 2^58
 *   sqr(f)             f normal                     ->  wide, |limb| < 2^58
 *   mul_a24(w, e)      w from sqr, e loose          ->  wide, |limb| < 2^58
 *   wide_add, _sub     two of these wides           ->  wide, |limb| < 2^59
 *   norm(w)            wide, |limb| < 2^59          ->  normal
 *   carry(w)           wide, |limb| < 2^59          ->  limbs in [0, 2^51 + 2^14)
 *
 * Constant time: no branch or address depends on the scalar or the points. The
 * time of floating-point add and FMA is known to vary with subnormals only, and
 * there are none: every double here is zero or an integer of magnitude 1 to 2^104.
 * (This is what measurements show; CPU vendors do not guarantee it.) */
#include "x25519_avx2.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "field25519.h"

#include <immintrin.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "x25519_avx2.c needs IEEE arithmetic: (x + C) - C must not be simplified"
#endif

#define TARGET __attribute__((target("avx2,fma")))
/* Inlined so that loop counters are constants and limbs stay in registers. */
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 9")

typedef __m256i vint; /* four 64-bit integers */
typedef __m256d vdbl; /* four doubles */
typedef struct { vdbl v[5]; } vfe;  /* four field elements, limbs as doubles */
typedef struct { vint v[5]; } wide; /* four unreduced ones, signed 64-bit limbs */

#define VINT(x) _mm256_set1_epi64x((long long)(x))
#define VDBL(x) _mm256_set1_pd(x)

/* The empty asm keeps each addition where it is written. Without it, GCC 12
 * moves additions below later products and spills registers: 10% slower. */
INLINE vint add(vint a, vint b)
{
    vint r = _mm256_add_epi64(a, b);
    __asm__("" : "+x"(r));
    return r;
}

/* 64-bit lanes cannot be multiplied, but 19 = 1 + 2 + 16. */
INLINE vint times19(vint a)
{
    return add(add(a, add(a, a)), _mm256_slli_epi64(a, 4));
}

#ifdef FLORIST_CHECK_BOUNDS /* slow: a test build that verifies every bound */
#include <assert.h>
TARGET static void check_product(vdbl a, vdbl b)
{
    for (int l = 0; l < 4; l++) {
        __int128 p = (__int128)a[l] * (__int128)b[l];
        assert(p < (__int128)1 << 102 && -p < (__int128)1 << 102);
    }
}
TARGET static void check_int(vint x, int64_t low, int64_t high)
{
    for (int l = 0; l < 4; l++)
        assert(low <= x[l] && x[l] <= high);
}
TARGET static void check_dbl(vdbl x, double bound)
{
    for (int l = 0; l < 4; l++)
        assert(-bound <= x[l] && x[l] <= bound && x[l] == (double)(int64_t)x[l]);
}
#else
#define check_product(a, b) ((void)0)
#define check_int(x, low, high) ((void)0)
#define check_dbl(x, bound) ((void)0)
#endif

/* ---- exact products from doubles ---------------------------------------- */

/* A double in [2^103, 2^104) is a multiple of 2^51, and one in [2^52, 2^53) is an
 * integer. So for |a*b| < 2^102, with C_HI and C_LO in the middle of those ranges:
 *
 *     hi = fma(a, b, C_HI)                  = C_HI + H, H = a*b rounded to 2^51
 *     lo = fma(a, b, (C_HI + C_LO) - hi)    = C_LO + (a*b - H),  |..| <= 2^50
 *
 * and both are exact: the subtraction is of multiples of 2^51 below 2^104, and
 * the last result is an integer in [2^52, 2^53). Within one binade the bits of a
 * double grow linearly with its value, so the bits ARE the integers we want,
 * plus a constant each: bits(hi) = C_HI_BITS + H/2^51, bits(lo) = C_LO_BITS +
 * (a*b - H). They are summed as 64-bit integers, including the constants
 * (wrapping around mod 2^64), and norm() subtracts the constants. */
#define C_HI 0x1.8p103
#define C_LO 0x1.8p52
#define C_HI_BITS UINT64_C(0x4668000000000000)
#define C_LO_BITS UINT64_C(0x4338000000000000)

INLINE void prod(vint *lo, vint *hi, vdbl a, vdbl b)
{
    check_product(a, b);
    vdbl h = _mm256_fmadd_pd(a, b, VDBL(C_HI));
    vdbl l = _mm256_fmadd_pd(a, b, _mm256_sub_pd(VDBL(C_HI + C_LO), h));
    *lo = _mm256_castpd_si256(l);
    *hi = _mm256_castpd_si256(h);
}

/* Adds a*b to column t: the low half to col[t], the high half to col[t + 1].
 * Columns are filled in order, so `first` (the first product of column t)
 * initialises col[t + 1]; column t - 1 has initialised col[t], except col[0]. */
INLINE void accumulate(vint col[10], int t, int first, vdbl a, vdbl b)
{
    vint lo, hi;
    prod(&lo, &hi, a, b);
    col[t] = t == 0 ? lo : add(col[t], lo);
    col[t + 1] = first ? hi : add(col[t + 1], hi);
}

/* The number of products in column t of mul, and of sqr (which combines f_i*f_j
 * with f_j*f_i); then the constants that are part of limb t of their results. */
#define MUL_COUNT(t) ((t) < 0 || (t) > 8 ? 0 : (t) < 4 ? (t) + 1 : 9 - (t))
#define SQR_COUNT(t) ((MUL_COUNT(t) + 1) / 2)
#define COLUMN_BITS(COUNT, t) (COUNT(t) * C_LO_BITS + COUNT((t)-1) * C_HI_BITS)
#define LIMB_BITS(COUNT, t) (COLUMN_BITS(COUNT, t) + 19 * COLUMN_BITS(COUNT, (t) + 5))

/* 2^255 = 19 mod p: column t + 5 counts 19 times in column t.
 * Each half product is at most M = 2^50 (1 + 2^-33) in magnitude: the low ones by
 * rounding, the high ones because |a*b| <= 2B^2. Column t of mul has MUL_COUNT(t)
 * low and MUL_COUNT(t - 1) high ones, so the worst limb is limb 0, with 1 of its
 * own and 19 times 4 + 5 from column 5: 172 M < 2^58. sqr has fewer. */
INLINE wide fold(const vint col[10])
{
    wide r;
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = add(col[t], times19(col[t + 5]));
    return r;
}

/* |f_i * g_j| <= 2B * B < 2^102, as prod() requires. */
INLINE wide mul(const vfe *f, const vfe *g)
{
    vint col[10];
    UNROLL for (int t = 0; t < 9; t++)
        UNROLL for (int i = 0; i < 5; i++) {
            int j = t - i;
            if (0 <= j && j < 5)
                accumulate(col, t, i == 0 || j == 4, f->v[i], g->v[j]);
        }
    return fold(col);
}

/* |2 f_i * f_j| <= 2B * B < 2^102 likewise. */
INLINE wide sqr(const vfe *f)
{
    vint col[10];
    vdbl f2[5];
    UNROLL for (int i = 0; i < 5; i++)
        f2[i] = _mm256_add_pd(f->v[i], f->v[i]);
    UNROLL for (int t = 0; t < 9; t++)
        UNROLL for (int i = 0; i < 5; i++) {
            int j = t - i;
            if (i <= j && j < 5)
                accumulate(col, t, i == 0 || j == 4, i == j ? f->v[i] : f2[i], f->v[j]);
        }
    return fold(col);
}

/* w + 121665 e, where w is the result of one sqr and keeps its constants.
 * |121665 e_i| < 2^69, so the high halves are below 2^18 and the low ones at most
 * 2^50: with the 19 * 2^18 of the wrapped one, w's 172 M bound stays below 2^58. */
INLINE wide mul_a24(wide w, const vfe *e)
{
    vint lo[5], hi[5];
    UNROLL for (int t = 0; t < 5; t++)
        prod(&lo[t], &hi[t], e->v[t], VDBL(121665));
    UNROLL for (int t = 0; t < 5; t++) {
        vint x = add(lo[t], t ? hi[t - 1] : times19(hi[4]));
        w.v[t] = add(w.v[t], add(x, VINT(-(C_LO_BITS + (t ? 1 : 19) * C_HI_BITS))));
    }
    return w;
}

/* ---- sums, carries ------------------------------------------------------- */

INLINE wide wide_add(wide a, wide b)
{
    UNROLL for (int t = 0; t < 5; t++)
        a.v[t] = add(a.v[t], b.v[t]);
    return a;
}

INLINE wide wide_sub(wide a, wide b)
{
    UNROLL for (int t = 0; t < 5; t++)
        a.v[t] = _mm256_sub_epi64(a.v[t], b.v[t]);
    return a;
}

INLINE vfe vfe_sub(vfe a, vfe b)
{
    UNROLL for (int t = 0; t < 5; t++)
        a.v[t] = _mm256_sub_pd(a.v[t], b.v[t]);
    return a;
}

/* Carries every limb into the next, all at once; adds `shift` to every limb first.
 * muls and sqrs are the numbers of results of mul and sqr that were added up in w
 * (minus those subtracted), hence of the constants to remove. Adding 2^9 p,
 * whose limbs are just below 2^60, makes limbs positive; they are then below
 * 2^60 + 2^59 + 2^50 < 770 * 2^51, so a carry is below 770, and 19 * 770 < 2^14. */
INLINE wide carry(wide w, int muls, int sqrs, uint64_t shift)
{
    vint c[5];
    UNROLL for (int t = 0; t < 5; t++) {
        uint64_t p_limb = t ? FE_MASK : FE_MASK - 18;
        uint64_t bits = (uint64_t)muls * LIMB_BITS(MUL_COUNT, t) +
                        (uint64_t)sqrs * LIMB_BITS(SQR_COUNT, t);
        check_int(add(w.v[t], VINT(-bits)), -(INT64_C(1) << 59), INT64_C(1) << 59);
        vint x = add(w.v[t], VINT(512 * p_limb + shift - bits));
        c[t] = _mm256_srli_epi64(x, 51);
        w.v[t] = _mm256_and_si256(x, VINT(FE_MASK));
    }
    UNROLL for (int t = 0; t < 5; t++) {
        w.v[t] = add(w.v[t], t ? c[t - 1] : _mm256_mul_epu32(c[4], VINT(19)));
        check_int(w.v[t], 0, (INT64_C(1) << 51) + (1 << 14) - 1);
    }
    return w;
}

/* Carries, then converts to doubles in [-2^50, 2^50 + 2^14): 2^50 is added to every
 * limb before the carry and subtracted after it. The conversion sets the exponent
 * of 2^52 above the limb (giving 2^52 + limb) and subtracts 2^52. */
INLINE vfe norm(wide w, int muls, int sqrs)
{
    vfe r;
    w = carry(w, muls, sqrs, UINT64_C(1) << 50);
    UNROLL for (int t = 0; t < 5; t++) {
        vdbl x = _mm256_or_pd(_mm256_castsi256_pd(w.v[t]), VDBL(0x1p52));
        r.v[t] = _mm256_sub_pd(x, VDBL(0x1p52 + 0x1p50));
        check_dbl(r.v[t], 0x1p50 + 0x1p14);
    }
    return r;
}

/* ---- the ladder ---------------------------------------------------------- */

/* A point (x : z) is stored as s = x + z and d = x - z, which is all that the
 * formulas of RFC 7748 use; this also needs only one carry where x, z, s and d
 * would need two. */
typedef struct { vfe s, d; } point;

/* Selects S if bit is 1, A if it is 0. */
INLINE point choose(const point *A, const point *S, uint64_t bit)
{
    point r;
    uint64_t ones = -bit;
    __asm__("" : "+r"(ones)); /* GCC must not find out that it is 0 or -1, and branch */
    vdbl mask = _mm256_castsi256_pd(VINT(ones));
    UNROLL for (int t = 0; t < 5; t++) {
        r.s.v[t] = _mm256_blendv_pd(A->s.v[t], S->s.v[t], mask);
        r.d.v[t] = _mm256_blendv_pd(A->d.v[t], S->d.v[t], mask);
    }
    return r;
}

/* z is the result of one mul, x that of the given numbers of mul and sqr. */
INLINE point to_point(wide x, wide z, int x_muls, int x_sqrs)
{
    return (point){
        .s = norm(wide_add(x, z), x_muls + 1, x_sqrs),
        .d = norm(wide_sub(x, z), x_muls - 1, x_sqrs),
    };
}

/* (x : z) = 2P, each the result of one mul. */
INLINE void twice(wide *x, wide *z, const point *P)
{
    wide ss = sqr(&P->s), dd = sqr(&P->d);
    vfe aa = norm(ss, 0, 1), bb = norm(dd, 0, 1), e = vfe_sub(aa, bb);
    *x = mul(&aa, &bb);
    vfe t = norm(mul_a24(ss, &e), 0, 1);
    *z = mul(&e, &t);
}

/* x[l] / z[l] = X25519(k, points[l]); limbs below 2^51 + 2^14. k is clamped, so its
 * bit 254 is 1 (we start at P and 2P) and bits 0 to 2 are 0 (we end with three
 * doublings).
 *
 * A is the last doubling, S the last differential sum; one is k'P, the other
 * (k'+1)P, where k' is the part of k read so far. A step needs their sum, which
 * is symmetric, and the double of one of them: of A if the bit read equals the
 * previous one, of S if not. This selection replaces the conditional swap. */
static __attribute__((noinline)) TARGET void ladder4(fe x[4], fe z[4], const uint8_t points[4 * 32],
                                                     const uint8_t k[32])
{
    wide x2, z2, x3, z3;
    for (int l = 0; l < 4; l++)
        x[l] = fe_load(points + 32 * l);
    for (int t = 0; t < 5; t++) {
        x3.v[t] = _mm256_set_epi64x((long long)x[3].limb[t], (long long)x[2].limb[t],
                                    (long long)x[1].limb[t], (long long)x[0].limb[t]);
        z3.v[t] = VINT(t == 0);
    }
    const vfe u = norm(x3, 0, 0);
    point S = { norm(wide_add(x3, z3), 0, 0), norm(wide_sub(x3, z3), 0, 0) };
    twice(&x2, &z2, &S);
    point A = to_point(x2, z2, 1, 0);

    uint64_t before = 1;
    for (int i = 253; i >= 3; i--) {
        uint64_t bit = k[i >> 3] >> (i & 7) & 1;
        point D = choose(&A, &S, bit ^ before);
        before = bit;

        /* (x2 : z2) = 2D and (x3 : z3) = A + S, in an order that always gives the CPU
         * independent work to overlap: z3 is last because it waits for `square`. */
        wide a = mul(&S.d, &A.s), b = mul(&S.s, &A.d);
        vfe minus = norm(wide_sub(a, b), 0, 0), plus = norm(wide_add(a, b), 2, 0);
        vfe square = norm(sqr(&minus), 0, 1);
        twice(&x2, &z2, &D);
        x3 = sqr(&plus);
        z3 = mul(&square, &u);
        S = to_point(x3, z3, 0, 1);
        A = to_point(x2, z2, 1, 0);
    }
    point R = choose(&A, &S, before); /* k'P, whose k' ends in `before` */
    for (int i = 0; i < 3; i++) {
        twice(&x2, &z2, &R);
        R = to_point(x2, z2, 1, 0);
    }

    x2 = carry(x2, 1, 0, 0);
    z2 = carry(z2, 1, 0, 0);
    for (int t = 0; t < 5; t++)
        for (int l = 0; l < 4; l++) {
            x[l].limb[t] = (uint64_t)x2.v[t][l];
            z[l].limb[t] = (uint64_t)z2.v[t][l];
        }
}

/* ---- many points --------------------------------------------------------- */

/* Points per inversion: with 128, divide() is 3% of the work, with 64 it was 4%,
 * and more than 128 only costs stack (16 KB here). */
#define BLOCK 128

/* All ones if a = 0 mod p, else 0. */
static uint64_t is_zero(fe a)
{
    uint64_t w[4], any;
    fe_store((uint8_t *)w, a);
    any = w[0] | w[1] | w[2] | w[3];
    return ((any | -any) >> 63) - 1;
}

/* out[i] = x[i] / z[i], and 0 where z[i] = 0, for i < n. Montgomery's trick:
 * multiply all, invert the product, and remove the factors again. Four such chains
 * run in parallel because fe_invert does four for little more than one. */
static void divide(uint8_t *out, size_t n, const fe x[BLOCK], fe z[BLOCK])
{
    uint64_t zero[BLOCK];
    fe before[BLOCK], product[4] = { FE_ONE, FE_ONE, FE_ONE, FE_ONE }, inverse[4];
    for (size_t i = 0; i < n; i++) {
        zero[i] = is_zero(z[i]);
        z[i].limb[0] += zero[i] & 1;
        before[i] = product[i % 4];
        product[i % 4] = fe_multiply(before[i], z[i]);
    }
    fe_invert(inverse, product);
    for (size_t i = n; i-- > 0;) {
        uint64_t w[4];
        fe_store((uint8_t *)w, fe_multiply(x[i], fe_multiply(inverse[i % 4], before[i])));
        inverse[i % 4] = fe_multiply(inverse[i % 4], z[i]);
        for (int j = 0; j < 4; j++)
            w[j] &= ~zero[i];
        memcpy(out + 32 * i, w, 32);
    }
}

static void wipe(void *secret, size_t size)
{
    memset(secret, 0, size);
    __asm__ volatile("" : : "r"(secret) : "memory"); /* keeps the memset */
}

int florist_x25519_avx2_available(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

void florist_x25519_avx2(uint8_t *out, const uint8_t *points, size_t n, const uint8_t scalar[32])
{
    uint8_t k[32];
    fe x[BLOCK], z[BLOCK];
    memcpy(k, scalar, 32);
    k[0] &= 248;
    k[31] = (k[31] & 127) | 64;

    /* Independent of the caller's floating-point state: round to nearest, no traps. */
    unsigned state = _mm_getcsr();
    _mm_setcsr(0x1f80);
    while (n > 0) {
        size_t now = n < BLOCK ? n : BLOCK;
        for (size_t i = 0; i < now; i += 4) {
            uint8_t four[4 * 32] = { 0 }; /* beyond the end: zeros, whose result is ignored */
            memcpy(four, points + 32 * i, 32 * (now - i < 4 ? now - i : 4));
            ladder4(x + i, z + i, four, k);
        }
        divide(out, now, x, z);
        out += 32 * now;
        points += 32 * now;
        n -= now;
    }
    _mm_setcsr(state);
    wipe(k, sizeof k);
    wipe(x, sizeof x); /* x and z reveal more about the scalar than x/z does */
    wipe(z, sizeof z);
}

#else

#include <stdlib.h>

int florist_x25519_avx2_available(void)
{
    return 0;
}

void florist_x25519_avx2(uint8_t *out, const uint8_t *points, size_t n, const uint8_t scalar[32])
{
    (void)out, (void)points, (void)n, (void)scalar;
    abort();
}

#endif
