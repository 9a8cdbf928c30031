/* X25519 of many points with one scalar: eight Montgomery ladders at a time, one per 64-bit lane of an
 * AVX-512 register, then one inversion for a whole block.
 *
 * A ladder step has about 780 instructions on 512 bits, half of them products of limbs, of which the
 * CPU runs two at a time, and it takes little longer than that. So their number matters and not their
 * latency: two groups of eight in parallel were slower, because there are not enough registers.
 *
 * Constant time: no branch or address depends on the scalar or the points. */
#include "x25519_ifma.h"

#include "field25519_ifma.h"

#include <stdlib.h>
#include <string.h>

#ifdef FLORIST_HAVE_IFMA

/* A point (x : z) is stored as s = x + z and d = x - z; see x25519_avx2.c. */
typedef struct { vfe s, d; } point;

/* x is biased. */
IFMA_INLINE point to_point(wide x, wide z)
{
    return (point){.s = norm(wide_add(x, z)), .d = norm(wide_sub(x, z))};
}

/* Selects S if bit is 1, A if it is 0. */
IFMA_INLINE point choose(const point *A, const point *S, uint64_t bit)
{
    uint64_t ones = -bit;
    __asm__("" : "+r"(ones)); /* GCC must not find out that it is 0 or -1, and branch */
    return (point){
        .s = vfe_choose(&A->s, &S->s, (__mmask8)ones),
        .d = vfe_choose(&A->d, &S->d, (__mmask8)ones),
    };
}

/* (x : z) = 2P, x biased. */
IFMA_INLINE void twice(wide *x, wide *z, const point *P)
{
    const wide ss = sqr(&P->s, BIASED), dd = sqr(&P->d, PLAIN);
    const vfe e = norm(wide_sub(ss, dd)), aa = norm(ss), bb = norm(dd);
    const vfe t = norm(add_small_multiple(ss, &e, 121665));
    *x = mul(&aa, &bb, BIASED);
    *z = mul(&e, &t, PLAIN);
}

/* x / z = X25519(k, points), in each lane. k is clamped. For the steps see ladder4 in x25519_avx2.c:
 * A is the last doubling, S the last differential sum. */
static __attribute__((noinline)) IFMA_TARGET void ladder8(vfe *x, vfe *z, words points,
                                                          const uint8_t k[32])
{
    wide x2, z2, x3, z3;
    const vfe u = from_words(points);
    const prepared by_u = prepare(&u);
    UNROLL for (int t = 0; t < 5; t++) {
        x3.v[t] = add(u.v[t], VINT(16 * P_LIMB(t)));
        z3.v[t] = VINT(t == 0);
    }
    point S = to_point(x3, z3);
    twice(&x2, &z2, &S);
    point A = to_point(x2, z2);

    uint64_t before = 1;
    for (int i = 253; i >= 3; i--) {
        const uint64_t bit = k[i >> 3] >> (i & 7) & 1;
        const point D = choose(&A, &S, bit ^ before);
        before = bit;

        const wide a = mul(&S.d, &A.s, BIASED), b = mul(&S.s, &A.d, PLAIN);
        const vfe minus = norm(wide_sub(a, b)), plus = norm(wide_add(a, b));
        const vfe square = vfe_sqr(&minus);
        twice(&x2, &z2, &D);
        x3 = sqr(&plus, BIASED);
        z3 = mul_prepared(&square, &by_u, PLAIN);
        S = to_point(x3, z3);
        A = to_point(x2, z2);
    }
    point R = choose(&A, &S, before); /* k'P, whose k' ends in `before` */
    for (int i = 0; i < 3; i++) {
        twice(&x2, &z2, &R);
        R = to_point(x2, z2);
    }
    *x = norm(x2);
    *z = norm(z2);
}

/* ---- many points --------------------------------------------------------- */

/* Vectors of points per inversion, which is then 1% of the work. */
#define BLOCK 32

static void wipe(void *secret, size_t size)
{
    memset(secret, 0, size);
    __asm__ volatile("" : : "r"(secret) : "memory"); /* keeps the memset */
}

/* out[i] = x[i] / z[i], and 0 where z[i] = 0, for i < n. Overwrites x and z. */
static IFMA_TARGET void divide(uint8_t *out, size_t n, vfe x[BLOCK], vfe z[BLOCK])
{
    const size_t vectors = (n + IFMA_LANES - 1) / IFMA_LANES;
    const vfe zero = vfe_small(0), one = vfe_small(1);
    vfe inverse[BLOCK];
    for (size_t i = 0; i < vectors; i++) {
        const __mmask8 at_zero = words_zero(to_words(&z[i]));
        x[i] = vfe_choose(&x[i], &zero, at_zero);
        z[i] = vfe_choose(&z[i], &one, at_zero);
    }
    vfe_invert_all(inverse, z, vectors);
    for (size_t i = 0; i < vectors; i++) {
        const vfe quotient = vfe_mul(&x[i], &inverse[i]);
        words_store(out + 32 * IFMA_LANES * i, lanes_of(n - IFMA_LANES * i), to_words(&quotient));
    }
    wipe(inverse, sizeof inverse);
}

IFMA_TARGET void florist_x25519_ifma(uint8_t *out, const uint8_t *points, size_t n,
                                     const uint8_t scalar[32])
{
    uint8_t k[32];
    vfe x[BLOCK], z[BLOCK];
    memcpy(k, scalar, 32);
    k[0] &= 248;
    k[31] = (k[31] & 127) | 64;

    while (n > 0) {
        const size_t now = n < BLOCK * IFMA_LANES ? n : BLOCK * IFMA_LANES;
        for (size_t i = 0; i < now; i += IFMA_LANES)
            ladder8(&x[i / IFMA_LANES], &z[i / IFMA_LANES],
                    words_load(points + 32 * i, lanes_of(now - i)), k);
        divide(out, now, x, z);
        out += 32 * now;
        points += 32 * now;
        n -= now;
    }
    wipe(k, sizeof k);
    wipe(x, sizeof x); /* x and z reveal more about the scalar than x/z does */
    wipe(z, sizeof z);
}

#else

void florist_x25519_ifma(uint8_t *out, const uint8_t *points, size_t n, const uint8_t scalar[32])
{
    (void)out, (void)points, (void)n, (void)scalar;
    abort();
}

#endif
