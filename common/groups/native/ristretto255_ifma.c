/* ristretto255.c on eight points at a time, in AVX-512 IFMA. The formulas are explained there. */
#include "ristretto255.h"

#include "field25519_ifma.h"
#include "ristretto255_common.h"

#include <stdlib.h>

#ifdef FLORIST_HAVE_IFMA

/* ---- numbers --------------------------------------------------------------- */

IFMA_INLINE vfe vfe_all(const fe *number)
{
    vfe r;
    UNROLL for (int t = 0; t < 5; t++)
        r.v[t] = VINT(number->limb[t]);
    return r;
}

/* Limbs of 52 bits: what the portable code accepts as a coordinate. */
IFMA_INLINE vint limb_52(vint limb)
{
    return _mm512_and_si512(limb, VINT((UINT64_C(1) << 52) - 1));
}

IFMA_INLINE vfe vfe_plus(const vfe *a, const vfe *b)
{
    wide sum;
    UNROLL for (int t = 0; t < 5; t++)
        sum.v[t] = add(limb_52(a->v[t]), limb_52(b->v[t]));
    return norm(sum);
}

/* a + 4p - b; the limbs of 4p exceed 52 bits. */
IFMA_INLINE vfe vfe_minus(const vfe *a, const vfe *b)
{
    wide difference;
    UNROLL for (int t = 0; t < 5; t++)
        difference.v[t] =
            _mm512_sub_epi64(add(limb_52(a->v[t]), VINT(4 * P_LIMB(t))), limb_52(b->v[t]));
    return norm(difference);
}

IFMA_INLINE vfe vfe_negative(const vfe *a)
{
    const vfe zero = vfe_small(0);
    return vfe_minus(&zero, a);
}

/* A mask of the lanes whose canonical encoding is odd. */
IFMA_INLINE __mmask8 vfe_odd(const vfe *a)
{
    return _mm512_test_epi64_mask(to_words(a).w[0], VINT(1));
}

IFMA_INLINE __mmask8 vfe_zero(const vfe *a)
{
    return words_zero(to_words(a));
}

IFMA_INLINE vfe vfe_absolute(const vfe *a)
{
    const vfe minus = vfe_negative(a);
    return vfe_choose(a, &minus, vfe_odd(a));
}

/* inverse_roots of IFMA_GROUP vectors; see ristretto255.c. */
static IFMA_TARGET void inverse_roots_8(vfe root[IFMA_GROUP], __mmask8 square[IFMA_GROUP],
                                        const vfe v[IFMA_GROUP])
{
    const vfe one = vfe_small(1), i = vfe_all(&SQRT_M1);
    vfe v3[IFMA_GROUP], v7[IFMA_GROUP];
    for (int k = 0; k < IFMA_GROUP; k++) {
        const vfe v2 = vfe_sqr(&v[k]);
        v3[k] = vfe_mul(&v2, &v[k]);
        const vfe v6 = vfe_sqr(&v3[k]);
        v7[k] = vfe_mul(&v6, &v[k]);
    }
    vfe_pow_2_250_1(root, v7, IFMA_GROUP);
    for (int k = 0; k < IFMA_GROUP; k++) {
        vfe r = vfe_sqr(&root[k]);
        r = vfe_sqr(&r);
        r = vfe_mul(&r, &v7[k]);
        r = vfe_mul(&r, &v3[k]);
        const vfe rr = vfe_sqr(&r), check = vfe_mul(&v[k], &rr), turned = vfe_mul(&r, &i);
        const vfe less = vfe_minus(&check, &one), more = vfe_plus(&check, &one);
        const vfe more_i = vfe_plus(&check, &i);
        const __mmask8 correct = vfe_zero(&less), flipped = vfe_zero(&more);
        r = vfe_choose(&r, &turned, flipped | vfe_zero(&more_i));
        root[k] = vfe_absolute(&r);
        square[k] = correct | flipped;
    }
}

/* ---- points --------------------------------------------------------------- */

typedef struct {
    vfe x, y, z, t;
} vpoint;

typedef struct {
    vfe sum, difference, t2d;
} vhalf;

_Static_assert(sizeof(vpoint) == POINT_WORDS * sizeof(vint), "a vpoint has eight points");

/* Indices of the first words of consecutive points. */
#define CONSECUTIVE \
    _mm512_set_epi64(7 * POINT_WORDS, 6 * POINT_WORDS, 5 * POINT_WORDS, 4 * POINT_WORDS, \
                     3 * POINT_WORDS, 2 * POINT_WORDS, POINT_WORDS, 0)

/* Loads the points whose first words have these indices; the neutral element in other lanes. */
IFMA_INLINE vpoint vpoint_load(const uint64_t *words, vint index, __mmask8 lanes)
{
    vint loaded[POINT_WORDS];
    for (int i = 0; i < POINT_WORDS; i++)
        loaded[i] = _mm512_mask_i64gather_epi64(VINT(i == 5 || i == 10), lanes, index, words + i, 8);
    vpoint p;
    memcpy(&p, loaded, sizeof p);
    return p;
}

IFMA_INLINE void vpoint_store(uint64_t *words, vint index, __mmask8 lanes, const vpoint *p)
{
    vint stored[POINT_WORDS];
    memcpy(stored, p, sizeof stored);
    for (int i = 0; i < POINT_WORDS; i++)
        _mm512_mask_i64scatter_epi64(words + i, lanes, index, limb_52(stored[i]), 8);
}

/* p + q, for q with Z = 1. */
IFMA_INLINE vpoint vpoint_add(const vpoint *p, const vhalf *q)
{
    const vfe less = vfe_minus(&p->y, &p->x), more = vfe_plus(&p->y, &p->x);
    const wide a = mul(&less, &q->difference, PLAIN), b = mul(&more, &q->sum, BIASED);
    const wide c = mul(&p->t, &q->t2d, PLAIN);
    wide d, minus;
    UNROLL for (int t = 0; t < 5; t++) {
        const vint z = limb_52(p->z.v[t]);
        d.v[t] = add(z, z);
        /* The bias of mul, so that c can be subtracted. */
        minus.v[t] = add(d.v[t], VINT(570 * P_LIMB(t)));
    }
    const vfe e = norm(wide_sub(b, a)), h = norm(wide_add(b, a));
    const vfe f = norm(wide_sub(minus, c)), g = norm(wide_add(d, c));
    return (vpoint){vfe_mul(&e, &f), vfe_mul(&g, &h), vfe_mul(&f, &g), vfe_mul(&e, &h)};
}

#define BLOCK (IFMA_GROUP * IFMA_LANES)

int IFMA_TARGET florist_ristretto_decode_ifma(uint64_t *points, uint8_t *valid,
                                              const uint8_t *encoded, size_t count)
{
    const vfe one = vfe_small(1), d = vfe_all(&EDWARDS_D);
    int all = 1;
    for (size_t i = 0; i < count; i += BLOCK) {
        vfe s[IFMA_GROUP], u1[IFMA_GROUP], u2[IFMA_GROUP], v[IFMA_GROUP], product[IFMA_GROUP];
        vfe root[IFMA_GROUP];
        __mmask8 good[IFMA_GROUP], square[IFMA_GROUP], lanes[IFMA_GROUP];
        for (size_t k = 0; k < IFMA_GROUP; k++) {
            const size_t at = i + IFMA_LANES * k;
            lanes[k] = at < count ? lanes_of(count - at) : 0;
            const words bytes = words_load(lanes[k] ? encoded + 32 * at : encoded, lanes[k]);
            s[k] = from_words(bytes);
            const words canonical = to_words(&s[k]);
            good[k] = _mm512_testn_epi64_mask(bytes.w[0], VINT(1));
            UNROLL for (int w = 0; w < 4; w++)
                good[k] &= _mm512_cmpeq_epi64_mask(bytes.w[w], canonical.w[w]);
            const vfe ss = vfe_sqr(&s[k]);
            u1[k] = vfe_minus(&one, &ss);
            u2[k] = vfe_plus(&one, &ss);
            const vfe u1_squared = vfe_sqr(&u1[k]), u2_squared = vfe_sqr(&u2[k]);
            const vfe du = vfe_mul(&d, &u1_squared), sum = vfe_plus(&du, &u2_squared);
            v[k] = vfe_negative(&sum);
            product[k] = vfe_mul(&v[k], &u2_squared);
        }
        inverse_roots_8(root, square, product);
        for (size_t k = 0; k < IFMA_GROUP && lanes[k]; k++) {
            const vpoint neutral = {vfe_small(0), one, one, vfe_small(0)};
            const vfe den_x = vfe_mul(&root[k], &u2[k]), both = vfe_mul(&root[k], &den_x);
            const vfe den_y = vfe_mul(&both, &v[k]), twice = vfe_plus(&s[k], &s[k]);
            const vfe signed_x = vfe_mul(&twice, &den_x), x = vfe_absolute(&signed_x);
            const vfe y = vfe_mul(&u1[k], &den_y), t = vfe_mul(&x, &y);
            const __mmask8 ok =
                good[k] & square[k] & (__mmask8)~vfe_odd(&t) & (__mmask8)~vfe_zero(&y);
            const vpoint p = {vfe_choose(&neutral.x, &x, ok), vfe_choose(&neutral.y, &y, ok), one,
                              vfe_choose(&neutral.t, &t, ok)};
            const size_t at = i + IFMA_LANES * k;
            vpoint_store(points + POINT_WORDS * at, CONSECUTIVE, lanes[k], &p);
            for (size_t lane = 0; lane < IFMA_LANES && at + lane < count; lane++)
                valid[at + lane] = ok >> lane & 1;
            all &= (ok & lanes[k]) == lanes[k];
        }
    }
    return all;
}

void IFMA_TARGET florist_ristretto_encode_ifma(uint8_t *encoded, const uint64_t *points, size_t count)
{
    const vfe root_m1 = vfe_all(&SQRT_M1), inverse_root = vfe_all(&INVSQRT_A_MINUS_D);
    for (size_t i = 0; i < count; i += BLOCK) {
        vpoint p[IFMA_GROUP];
        vfe u1[IFMA_GROUP], u2[IFMA_GROUP], product[IFMA_GROUP], root[IFMA_GROUP];
        __mmask8 square[IFMA_GROUP], lanes[IFMA_GROUP];
        for (size_t k = 0; k < IFMA_GROUP; k++) {
            const size_t at = i + IFMA_LANES * k;
            lanes[k] = at < count ? lanes_of(count - at) : 0;
            p[k] = vpoint_load(lanes[k] ? points + POINT_WORDS * at : points, CONSECUTIVE, lanes[k]);
            const vfe more = vfe_plus(&p[k].z, &p[k].y), less = vfe_minus(&p[k].z, &p[k].y);
            u1[k] = vfe_mul(&more, &less);
            u2[k] = vfe_mul(&p[k].x, &p[k].y);
            const vfe u2_squared = vfe_sqr(&u2[k]);
            product[k] = vfe_mul(&u1[k], &u2_squared);
        }
        inverse_roots_8(root, square, product);
        for (size_t k = 0; k < IFMA_GROUP && lanes[k]; k++) {
            const vfe den1 = vfe_mul(&root[k], &u1[k]), den2 = vfe_mul(&root[k], &u2[k]);
            const vfe both = vfe_mul(&den1, &den2), z_inverse = vfe_mul(&both, &p[k].t);
            const vfe xy = vfe_mul(&p[k].t, &z_inverse);
            const __mmask8 rotate = vfe_odd(&xy);
            const vfe ix = vfe_mul(&p[k].x, &root_m1), iy = vfe_mul(&p[k].y, &root_m1);
            const vfe den3 = vfe_mul(&den1, &inverse_root);
            const vfe x = vfe_choose(&p[k].x, &iy, rotate), y = vfe_choose(&p[k].y, &ix, rotate);
            const vfe den = vfe_choose(&den2, &den3, rotate), affine_x = vfe_mul(&x, &z_inverse);
            const vfe minus_y = vfe_negative(&y);
            const vfe signed_y = vfe_choose(&y, &minus_y, vfe_odd(&affine_x));
            const vfe less = vfe_minus(&p[k].z, &signed_y), s = vfe_mul(&den, &less);
            const vfe even = vfe_absolute(&s);
            words_store(encoded + 32 * (i + IFMA_LANES * k), lanes[k], to_words(&even));
        }
    }
}

/* ---- multiplication -------------------------------------------------------- */

/* digits[lane] * the point of the row, for each lane; every entry is read. */
IFMA_INLINE vhalf select_entries(const uint64_t *row, vint digits)
{
    const __mmask8 negative = _mm512_movepi64_mask(digits);
    const vint absolute = _mm512_abs_epi64(digits);
    vint found[15];
    const __mmask8 none = _mm512_testn_epi64_mask(absolute, absolute);
    for (int w = 0; w < 15; w++) /* the neutral element: y + x = y - x = 1, t = 0 */
        found[w] = w == 0 || w == 5 ? _mm512_maskz_mov_epi64(none, VINT(1)) : VZERO;
    for (int entry = 0; entry < TABLE_ENTRIES; entry++) {
        const __mmask8 here = _mm512_cmpeq_epi64_mask(absolute, VINT(entry + 1));
        UNROLL for (int w = 0; w < 15; w++)
            found[w] = _mm512_mask_mov_epi64(found[w], here, VINT(row[16 * entry + w]));
    }
    vfe sum, difference, t2d;
    memcpy(&sum, found, sizeof sum);
    memcpy(&difference, found + 5, sizeof difference);
    memcpy(&t2d, found + 10, sizeof t2d);
    const vfe minus = vfe_negative(&t2d);
    return (vhalf){vfe_choose(&sum, &difference, negative), vfe_choose(&difference, &sum, negative),
                   vfe_choose(&t2d, &minus, negative)};
}

void IFMA_TARGET florist_ristretto_multiply_table_ifma(uint64_t *out, const uint64_t table[TABLE_WORDS],
                                                       const uint8_t *scalars, size_t count)
{
    for (size_t done = 0; done < count; done += IFMA_LANES) {
        const size_t size = count - done < IFMA_LANES ? count - done : IFMA_LANES;
        int8_t digits[IFMA_LANES][TABLE_ROWS] = {{0}};
        for (size_t i = 0; i < size; i++)
            digits_of(digits[i], scalars + SCALAR_BYTES * (done + i));
        vpoint sum = {vfe_small(0), vfe_small(1), vfe_small(1), vfe_small(0)};
        for (size_t row = 0; row < TABLE_ROWS; row++) {
            const vint column = _mm512_set_epi64(
                digits[7][row], digits[6][row], digits[5][row], digits[4][row], digits[3][row],
                digits[2][row], digits[1][row], digits[0][row]);
            const vhalf q = select_entries(table + 16 * TABLE_ENTRIES * row, column);
            sum = vpoint_add(&sum, &q);
        }
        vpoint_store(out + POINT_WORDS * done, CONSECUTIVE, lanes_of(size), &sum);
    }
}

/* ---- sums ------------------------------------------------------------------ */

/* Whether two of the first `size` numbers are equal. */
static int any_equal(const int32_t *numbers, size_t size)
{
    int equal = 0;
    for (size_t i = 1; i < size; i++)
        for (size_t j = 0; j < i; j++)
            equal |= numbers[i] == numbers[j];
    return equal;
}

/* Adds q to one point of the pair of sums of each coordinate; all coordinates are different. */
static inline IFMA_TARGET void add_to(uint64_t *sums, const int32_t *coordinates, size_t size,
                                      const vhalf *q)
{
    long long index[IFMA_LANES] = {0};
    for (size_t i = 0; i < size; i++)
        index[i] = 2LL * POINT_WORDS * coordinates[i];
    const vint places = _mm512_loadu_si512(index);
    const vpoint before = vpoint_load(sums, places, lanes_of(size)), after = vpoint_add(&before, q);
    vpoint_store(sums, places, lanes_of(size), &after);
}

int IFMA_TARGET florist_ristretto_accumulate_ifma(uint64_t *sums, size_t sum_count,
                                                  const uint64_t *pairs, size_t pair_count,
                                                  const int64_t *rows, size_t count,
                                                  const int32_t *coordinates, size_t columns)
{
    if (!places_fit(rows, count, pair_count, coordinates, columns, sum_count))
        return 0;
    const vfe twice_d = vfe_all(&EDWARDS_2D);
    for (size_t i = 0; i < count; i++) {
        vhalf both[2];
        for (int side = 0; side < 2; side++) {
            /* All lanes are the same point. */
            const vpoint p = vpoint_load(pairs + POINT_WORDS * (2 * (size_t)rows[i] + side), VZERO, 0xff);
            both[side] = (vhalf){vfe_plus(&p.y, &p.x), vfe_minus(&p.y, &p.x), vfe_mul(&p.t, &twice_d)};
        }
        const int32_t *own = coordinates + i * columns;
        for (size_t column = 0; column < columns;) {
            size_t size = columns - column < IFMA_LANES ? columns - column : IFMA_LANES;
            if (any_equal(own + column, size))
                size = 1;
            for (int side = 0; side < 2; side++)
                add_to(sums + POINT_WORDS * side, own + column, size, &both[side]);
            column += size;
        }
    }
    return 1;
}

#else

int florist_ristretto_decode_ifma(uint64_t *points, uint8_t *valid, const uint8_t *encoded, size_t count)
{
    (void)points, (void)valid, (void)encoded, (void)count;
    abort();
}

void florist_ristretto_encode_ifma(uint8_t *encoded, const uint64_t *points, size_t count)
{
    (void)encoded, (void)points, (void)count;
    abort();
}

void florist_ristretto_multiply_table_ifma(uint64_t *out, const uint64_t table[TABLE_WORDS],
                                           const uint8_t *scalars, size_t count)
{
    (void)out, (void)table, (void)scalars, (void)count;
    abort();
}

int florist_ristretto_accumulate_ifma(uint64_t *sums, size_t sum_count, const uint64_t *pairs,
                                      size_t pair_count, const int64_t *rows, size_t count,
                                      const int32_t *coordinates, size_t columns)
{
    (void)sums, (void)sum_count, (void)pairs, (void)pair_count;
    (void)rows, (void)count, (void)coordinates, (void)columns;
    abort();
}

#endif
