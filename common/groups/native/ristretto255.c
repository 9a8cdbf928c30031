#include "ristretto255.h"

#include "ristretto255_common.h"

#define FE_ZERO ((fe){{0, 0, 0, 0, 0}})

/* `a`, or `b` where the mask is set. */
static inline fe fe_choose(fe a, fe b, uint64_t mask)
{
    for (int i = 0; i < 5; i++)
        a.limb[i] ^= mask & (a.limb[i] ^ b.limb[i]);
    return a;
}

/* a - b, for limbs of `b` below 2^53 - 76. */
static inline fe fe_subtract(fe a, fe b)
{
    return fe_add(a, fe_negate(b));
}

/* All ones if the canonical encoding is odd, which the RFC calls negative; else 0. */
static inline uint64_t fe_odd(fe a)
{
    uint8_t bytes[32];
    fe_store(bytes, a);
    return opaque((uint64_t)0 - (bytes[0] & 1));
}

/* All ones if the 32 bytes are equal, else 0. */
static inline uint64_t same_bytes(const uint8_t a[32], const uint8_t b[32])
{
    uint64_t difference = 0;
    for (int i = 0; i < 32; i += 8)
        difference |= load_le64(a + i) ^ load_le64(b + i);
    return opaque(((difference | ((uint64_t)0 - difference)) >> 63) - 1);
}

static inline uint64_t fe_equal(fe a, fe b)
{
    uint8_t one[32], other[32];
    fe_store(one, a);
    fe_store(other, b);
    return same_bytes(one, other);
}

/* The one of a and -a that is even. `a` is a result of a multiplication. */
static inline fe fe_absolute(fe a)
{
    return fe_choose(a, fe_carry(fe_negate(a)), fe_odd(a));
}

/* SQRT_RATIO_M1(1, v) of the RFC for each lane: the even root of 1/v or of sqrt(-1)/v, and a mask that
 * is set if it is the first. Both are 0 if v is. */
static void inverse_roots(fe root[FE_LANES], uint64_t square[FE_LANES], const fe v[FE_LANES])
{
    fe v3[FE_LANES], v7[FE_LANES];
    for (int lane = 0; lane < FE_LANES; lane++) {
        v3[lane] = fe_multiply(fe_square(v[lane]), v[lane]);
        v7[lane] = fe_multiply(fe_square(v3[lane]), v[lane]);
    }
    fe_pow_2_250_1(root, v7);
    for (int lane = 0; lane < FE_LANES; lane++) {
        /* (p - 5) / 8 = 4 (2^250 - 1) + 1 */
        const fe power = fe_multiply(fe_square(fe_square(root[lane])), v7[lane]);
        const fe r = fe_multiply(v3[lane], power);
        const fe check = fe_multiply(v[lane], fe_square(r));
        const uint64_t correct = fe_equal(check, FE_ONE);
        const uint64_t flipped = fe_equal(check, fe_negate(FE_ONE));
        const uint64_t flipped_i = fe_equal(check, fe_negate(SQRT_M1));
        root[lane] = fe_absolute(fe_choose(r, fe_multiply(r, SQRT_M1), flipped | flipped_i));
        square[lane] = correct | flipped;
    }
}

/* ---- points --------------------------------------------------------------- */

/* x = X/Z, y = Y/Z, xy = T/Z; every coordinate is a result of a multiplication, or smaller. */
typedef struct {
    fe x, y, z, t;
} point;

/* What an addition needs of its second operand. */
typedef struct {
    fe sum, difference, t2d; /* y + x, y - x and 2dxy, all times Z */
} half_cached;               /* of a point with Z = 1 */

typedef struct {
    half_cached half;
    fe z;
} cached;

_Static_assert(sizeof(point) == POINT_WORDS * sizeof(uint64_t), "a point has POINT_WORDS words");

static const point NEUTRAL = {{{0}}, {{1}}, {{1}}, {{0}}};

static inline point point_load(const uint64_t *words)
{
    point p;
    memcpy(&p, words, sizeof p);
    return p;
}

static inline void point_store(uint64_t *words, point p)
{
    memcpy(words, &p, sizeof p);
}

/* Carried, so that a cached point can be negated and its limbs stay small. */
static inline half_cached half_cache(fe x, fe y, fe t)
{
    return (half_cached){fe_carry(fe_add(y, x)), fe_carry(fe_subtract(y, x)), fe_multiply(t, EDWARDS_2D)};
}

static inline cached cache_point(point p)
{
    return (cached){half_cache(p.x, p.y, p.t), p.z};
}

/* The complete addition of Hisil, Wong, Carter and Dawson for a = -1, given Z1 * Z2. */
static inline point add_cached(point p, half_cached q, fe z)
{
    const fe a = fe_multiply(fe_subtract(p.y, p.x), q.difference);
    const fe b = fe_multiply(fe_add(p.y, p.x), q.sum);
    const fe c = fe_multiply(p.t, q.t2d), d = fe_add(z, z);
    const fe e = fe_subtract(b, a), f = fe_subtract(d, c), g = fe_add(d, c), h = fe_add(b, a);
    return (point){fe_multiply(e, f), fe_multiply(g, h), fe_multiply(f, g), fe_multiply(e, h)};
}

static inline point point_add(point p, const cached *q)
{
    return add_cached(p, q->half, fe_multiply(p.z, q->z));
}

static inline point point_double(point p)
{
    const fe a = fe_square(p.x), b = fe_square(p.y), zz = fe_square(p.z);
    const fe h = fe_add(a, b), e = fe_subtract(h, fe_square(fe_add(p.x, p.y)));
    const fe g = fe_subtract(a, b), f = fe_add(fe_add(zz, zz), g);
    return (point){fe_multiply(e, f), fe_multiply(g, h), fe_multiply(f, g), fe_multiply(e, h)};
}

int florist_ristretto_decode(uint64_t *points, uint8_t *valid, const uint8_t *encoded, size_t count)
{
    uint64_t all = ~UINT64_C(0);
    for (size_t i = 0; i < count; i += FE_LANES) {
        fe s[FE_LANES], u1[FE_LANES], u2[FE_LANES], v[FE_LANES], product[FE_LANES], root[FE_LANES];
        uint64_t good[FE_LANES], square[FE_LANES];
        for (int lane = 0; lane < FE_LANES; lane++) {
            /* A short group repeats its first element. */
            const uint8_t *bytes = encoded + 32 * (i + lane < count ? i + lane : i);
            uint8_t canonical[32];
            s[lane] = fe_load(bytes);
            fe_store(canonical, s[lane]);
            good[lane] = same_bytes(canonical, bytes) & ((uint64_t)(bytes[0] & 1) - 1);
            const fe ss = fe_square(s[lane]);
            u1[lane] = fe_subtract(FE_ONE, ss);
            u2[lane] = fe_add(FE_ONE, ss);
            const fe u2_squared = fe_square(u2[lane]);
            const fe dd = fe_multiply(EDWARDS_D, fe_square(u1[lane]));
            v[lane] = fe_carry(fe_negate(fe_add(dd, u2_squared)));
            product[lane] = fe_multiply(v[lane], u2_squared);
        }
        inverse_roots(root, square, product);
        for (size_t lane = 0; lane < FE_LANES && i + lane < count; lane++) {
            const fe den_x = fe_multiply(root[lane], u2[lane]);
            const fe den_y = fe_multiply(fe_multiply(root[lane], den_x), v[lane]);
            point p;
            p.x = fe_absolute(fe_multiply(fe_add(s[lane], s[lane]), den_x));
            p.y = fe_multiply(u1[lane], den_y);
            p.z = FE_ONE;
            p.t = fe_multiply(p.x, p.y);
            const uint64_t ok = good[lane] & square[lane] & ~fe_odd(p.t) & ~fe_equal(p.y, FE_ZERO);
            p.x = fe_choose(NEUTRAL.x, p.x, ok);
            p.y = fe_choose(NEUTRAL.y, p.y, ok);
            p.t = fe_choose(NEUTRAL.t, p.t, ok);
            point_store(points + POINT_WORDS * (i + lane), p);
            valid[i + lane] = (uint8_t)(ok & 1);
            all &= ok;
        }
    }
    return (int)(all & 1);
}

void florist_ristretto_encode(uint8_t *encoded, const uint64_t *points, size_t count)
{
    for (size_t i = 0; i < count; i += FE_LANES) {
        point p[FE_LANES];
        fe u1[FE_LANES], u2[FE_LANES], product[FE_LANES], root[FE_LANES];
        uint64_t square[FE_LANES];
        for (int lane = 0; lane < FE_LANES; lane++) {
            p[lane] = point_load(points + POINT_WORDS * (i + lane < count ? i + lane : i));
            u1[lane] = fe_multiply(fe_add(p[lane].z, p[lane].y), fe_subtract(p[lane].z, p[lane].y));
            u2[lane] = fe_multiply(p[lane].x, p[lane].y);
            product[lane] = fe_multiply(u1[lane], fe_square(u2[lane]));
        }
        inverse_roots(root, square, product);
        for (size_t lane = 0; lane < FE_LANES && i + lane < count; lane++) {
            const fe den1 = fe_multiply(root[lane], u1[lane]), den2 = fe_multiply(root[lane], u2[lane]);
            const fe z_inverse = fe_multiply(fe_multiply(den1, den2), p[lane].t);
            const uint64_t rotate = fe_odd(fe_multiply(p[lane].t, z_inverse));
            const fe x = fe_choose(p[lane].x, fe_multiply(p[lane].y, SQRT_M1), rotate);
            fe y = fe_choose(p[lane].y, fe_multiply(p[lane].x, SQRT_M1), rotate);
            const fe den = fe_choose(den2, fe_multiply(den1, INVSQRT_A_MINUS_D), rotate);
            y = fe_choose(y, fe_carry(fe_negate(y)), fe_odd(fe_multiply(x, z_inverse)));
            const fe s = fe_multiply(den, fe_subtract(p[lane].z, y));
            fe_store(encoded + 32 * (i + lane), fe_absolute(s));
        }
    }
}

void florist_ristretto_add(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t count, int same)
{
    cached q = cache_point(NEUTRAL);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !same)
            q = cache_point(point_load(b + POINT_WORDS * i));
        point_store(out + POINT_WORDS * i, point_add(point_load(a + POINT_WORDS * i), &q));
    }
}

/* Inverts `count` numbers, none of them zero, in place and with one inversion for all (Montgomery's
 * trick). `products` has room for `count` numbers. */
static void invert_all(fe *numbers, fe *products, size_t count)
{
    fe running[FE_LANES] = {FE_ONE, FE_ONE, FE_ONE, FE_ONE}, inverse[FE_LANES];
    for (size_t i = 0; i < count; i++) {
        products[i] = running[i % FE_LANES];
        running[i % FE_LANES] = fe_multiply(running[i % FE_LANES], numbers[i]);
    }
    fe_invert(inverse, running);
    for (size_t i = count; i-- > 0;) {
        const fe inverted = fe_multiply(products[i], inverse[i % FE_LANES]);
        inverse[i % FE_LANES] = fe_multiply(inverse[i % FE_LANES], numbers[i]);
        numbers[i] = inverted;
    }
}

#define INVERTED_AT_ONCE 128

void florist_ristretto_ordinates(uint64_t *out, const uint64_t *points, size_t count)
{
    for (size_t done = 0; done < count; done += INVERTED_AT_ONCE) {
        const size_t size = count - done < INVERTED_AT_ONCE ? count - done : INVERTED_AT_ONCE;
        fe inverse[INVERTED_AT_ONCE], products[INVERTED_AT_ONCE];
        for (size_t i = 0; i < size; i++)
            inverse[i] = point_load(points + POINT_WORDS * (done + i)).z;
        invert_all(inverse, products, size);
        for (size_t i = 0; i < size; i++) {
            uint8_t bytes[32];
            fe_store(bytes, fe_multiply(point_load(points + POINT_WORDS * (done + i)).y, inverse[i]));
            out[done + i] = load_le64(bytes);
        }
    }
}

int florist_ristretto_accumulate(uint64_t *sums, size_t sum_count, const uint64_t *pairs,
                                 size_t pair_count, const int64_t *rows, size_t count,
                                 const int32_t *coordinates, size_t columns)
{
    if (!places_fit(rows, count, pair_count, coordinates, columns, sum_count))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *pair = pairs + 2 * POINT_WORDS * (size_t)rows[i];
        half_cached both[2];
        for (int side = 0; side < 2; side++) {
            const point p = point_load(pair + POINT_WORDS * side);
            both[side] = half_cache(p.x, p.y, p.t);
        }
        for (size_t column = 0; column < columns; column++) {
            uint64_t *sum = sums + 2 * POINT_WORDS * (size_t)coordinates[i * columns + column];
            for (int side = 0; side < 2; side++) {
                const point p = point_load(sum + POINT_WORDS * side);
                point_store(sum + POINT_WORDS * side, add_cached(p, both[side], p.z));
            }
        }
    }
    return 1;
}

/* ---- scalars --------------------------------------------------------------- */

void florist_scalars_reduce(uint8_t *out, const uint8_t *wide, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const scalar low = scalar_load(wide + WIDE_BYTES * i);
        const scalar high = scalar_load(wide + WIDE_BYTES * i + SCALAR_BYTES);
        scalar_store(out + SCALAR_BYTES * i,
                     scalar_add(scalar_reduce(low), scalar_montgomery(high, TWO_512)));
    }
}

void florist_scalars_multiply_add(uint8_t *out, const uint8_t *scalars, const uint8_t factor[SCALAR_BYTES],
                                  const int64_t *values, size_t count)
{
    const scalar times = scalar_montgomery(scalar_load(factor), TWO_512);
    for (size_t i = 0; i < count; i++) {
        const scalar product = scalar_montgomery(scalar_load(scalars + SCALAR_BYTES * i), times);
        scalar_store(out + SCALAR_BYTES * i, scalar_add(product, scalar_of(values[i])));
    }
}

/* ---- multiplication -------------------------------------------------------- */

/* All ones if the digit is negative, and its absolute value. */
static inline uint64_t digit_sign(int8_t digit, uint64_t *absolute)
{
    const uint64_t wide = (uint64_t)(int64_t)digit, sign = opaque((uint64_t)0 - (wide >> 63));
    *absolute = (wide ^ sign) - sign;
    return sign;
}

/* All ones if a == b, for numbers below 2^63; else 0. */
static inline uint64_t equal_mask(uint64_t a, uint64_t b)
{
    return opaque((uint64_t)0 - (((a ^ b) - 1) >> 63));
}

static inline half_cached half_negated(half_cached q, uint64_t mask)
{
    return (half_cached){fe_choose(q.sum, q.difference, mask), fe_choose(q.difference, q.sum, mask),
                         fe_choose(q.t2d, fe_negate(q.t2d), mask)};
}

/* An entry of a table: a point with Z = 1, and a word that is not used. */
typedef struct {
    half_cached half;
    uint64_t unused;
} entry;

_Static_assert(sizeof(entry) * TABLE_ROWS * TABLE_ENTRIES == TABLE_WORDS * sizeof(uint64_t),
               "an entry has 16 words");

/* digit * the point of the row; every entry is read. */
static inline half_cached select_entry(const entry row[TABLE_ENTRIES], int8_t digit)
{
    uint64_t absolute, words[16];
    const uint64_t sign = digit_sign(digit, &absolute), none = equal_mask(absolute, 0) & 1;
    memset(words, 0, sizeof words);
    words[0] = words[5] = none; /* the neutral element: y + x = y - x = 1, t = 0 */
    for (uint64_t i = 0; i < TABLE_ENTRIES; i++) {
        const uint64_t mask = equal_mask(absolute, i + 1);
        uint64_t read[16];
        memcpy(read, row + i, sizeof read);
        for (int j = 0; j < 16; j++)
            words[j] |= mask & read[j];
    }
    half_cached q;
    memcpy(&q, words, sizeof q);
    return half_negated(q, sign);
}

void florist_ristretto_table(uint64_t table[TABLE_WORDS], const uint64_t base[POINT_WORDS])
{
    point next = point_load(base);
    for (size_t row = 0; row < TABLE_ROWS; row++) {
        point multiples[TABLE_ENTRIES];
        fe inverse[TABLE_ENTRIES], products[TABLE_ENTRIES];
        const cached step = cache_point(next);
        for (int i = 0; i < TABLE_ENTRIES; i++) {
            multiples[i] = i == 0 ? next : point_add(multiples[i - 1], &step);
            inverse[i] = multiples[i].z;
        }
        next = point_double(multiples[TABLE_ENTRIES - 1]);
        invert_all(inverse, products, TABLE_ENTRIES);
        for (size_t i = 0; i < TABLE_ENTRIES; i++) {
            const fe x = fe_multiply(multiples[i].x, inverse[i]);
            const fe y = fe_multiply(multiples[i].y, inverse[i]);
            const entry made = {half_cache(x, y, fe_multiply(x, y)), 0};
            memcpy(table + 16 * (TABLE_ENTRIES * row + i), &made, sizeof made);
        }
    }
}

/* Scalars that go through the table together, so that a row stays in the cache. */
#define TOGETHER 8

void florist_ristretto_multiply_table(uint64_t *out, const uint64_t table[TABLE_WORDS],
                                      const uint8_t *scalars, size_t count)
{
    for (size_t done = 0; done < count; done += TOGETHER) {
        const size_t size = count - done < TOGETHER ? count - done : TOGETHER;
        int8_t digits[TOGETHER][TABLE_ROWS];
        point sums[TOGETHER];
        for (size_t i = 0; i < size; i++) {
            digits_of(digits[i], scalars + SCALAR_BYTES * (done + i));
            sums[i] = NEUTRAL;
        }
        for (size_t row = 0; row < TABLE_ROWS; row++) {
            entry entries[TABLE_ENTRIES];
            memcpy(entries, table + 16 * TABLE_ENTRIES * row, sizeof entries);
            for (size_t i = 0; i < size; i++)
                sums[i] = add_cached(sums[i], select_entry(entries, digits[i][row]), sums[i].z);
        }
        for (size_t i = 0; i < size; i++)
            point_store(out + POINT_WORDS * (done + i), sums[i]);
    }
}

/* digit * the point of the multiples 1 to 8; each is read. */
static inline cached select_multiple(const cached multiples[TABLE_ENTRIES], int8_t digit)
{
    uint64_t absolute;
    const uint64_t sign = digit_sign(digit, &absolute);
    cached q = cache_point(NEUTRAL);
    for (uint64_t i = 0; i < TABLE_ENTRIES; i++) {
        const uint64_t mask = equal_mask(absolute, i + 1);
        q.half.sum = fe_choose(q.half.sum, multiples[i].half.sum, mask);
        q.half.difference = fe_choose(q.half.difference, multiples[i].half.difference, mask);
        q.half.t2d = fe_choose(q.half.t2d, multiples[i].half.t2d, mask);
        q.z = fe_choose(q.z, multiples[i].z, mask);
    }
    q.half = half_negated(q.half, sign);
    return q;
}

void florist_ristretto_multiply(uint64_t *out, const uint64_t *points, size_t count,
                                const uint8_t scalar[SCALAR_BYTES])
{
    int8_t digits[TABLE_ROWS];
    digits_of(digits, scalar);
    for (size_t i = 0; i < count; i++) {
        cached multiples[TABLE_ENTRIES];
        point sum = point_load(points + POINT_WORDS * i);
        multiples[0] = cache_point(sum);
        for (int j = 1; j < TABLE_ENTRIES; j++) {
            sum = point_add(sum, &multiples[0]);
            multiples[j] = cache_point(sum);
        }
        sum = NEUTRAL;
        for (int row = TABLE_ROWS - 1; row >= 0; row--) {
            for (int j = 0; j < 4; j++)
                sum = point_double(sum);
            const cached q = select_multiple(multiples, digits[row]);
            sum = point_add(sum, &q);
        }
        point_store(out + POINT_WORDS * i, sum);
    }
}
