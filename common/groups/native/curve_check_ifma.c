/* The batch test of curve_check.c on vectors of eight points, in AVX-512 IFMA. */
#include "curve_check.h"

#include "field25519_ifma.h"

#include <stdlib.h>

#ifdef FLORIST_HAVE_IFMA

/* Each lane is a separate batch, but all lanes use the same random bytes: one per vector and round.
 * For the points of one lane these bytes are still uniform, and if any lane has an invalid point,
 * the symbols of that lane show it. So there are eight times as many symbols to compute at the end,
 * eight at a time, and everything else is an eighth of the work. */

#define BUCKETS 256
#define SUBSETS_PER_ROUND 8
#define SUBSETS (CHECK_ROUNDS * SUBSETS_PER_ROUND)

/* Computes the right side of the curve equation for every canonical encoding except 0; unused lanes
 * become 1. */
static IFMA_TARGET int load_right_sides(vfe right_side[], const uint8_t *points, size_t count)
{
    const vfe one = vfe_small(1);
    __mmask8 bad = 0;
    for (size_t i = 0; i < count; i += IFMA_LANES) {
        const __mmask8 lanes = lanes_of(count - i);
        const words given = words_load(points + 32 * i, lanes);
        const vfe u = from_words(given), right = vfe_right_side(&u);
        const words canonical = to_words(&u);
        bad |= lanes & words_zero(given);
        UNROLL for (int w = 0; w < 4; w++)
            bad |= _mm512_cmpneq_epi64_mask(given.w[w], canonical.w[w]);
        right_side[i / IFMA_LANES] = vfe_choose(&one, &right, lanes);
    }
    return !bad;
}

/* products[k] = the product of the buckets whose index has bit k. Overwrites the buckets: after the
 * highest bit is processed, the two halves are merged. */
static IFMA_TARGET void subset_products(vfe products[SUBSETS_PER_ROUND], vfe bucket[BUCKETS])
{
    for (int k = SUBSETS_PER_ROUND; k-- > 0;) {
        const int half = 1 << k;
        products[k] = bucket[half];
        for (int i = 1; i < half; i++)
            products[k] = vfe_mul(&products[k], &bucket[half + i]);
        for (int i = 0; i < half; i++)
            bucket[i] = vfe_mul(&bucket[i], &bucket[half + i]);
    }
}

/* Multiplies each right side into the bucket of the round that its random byte selects. */
static IFMA_TARGET void round_products(vfe products[SUBSETS_PER_ROUND], const vfe right_side[],
                                       size_t vectors, const uint8_t *random)
{
    vfe bucket[BUCKETS];
    for (int i = 0; i < BUCKETS; i++)
        bucket[i] = vfe_small(1);
    for (size_t i = 0; i < vectors; i++) {
        vfe *chosen = &bucket[random[i]];
        *chosen = vfe_mul(chosen, &right_side[i]);
    }
    subset_products(products, bucket);
}

static IFMA_TARGET int are_squares(const vfe products[SUBSETS])
{
    __mmask8 all = 0xff;
    for (int subset = 0; subset < SUBSETS; subset += IFMA_GROUP) {
        __mmask8 square[IFMA_GROUP];
        vfe_is_square(square, products + subset);
        for (int k = 0; k < IFMA_GROUP; k++)
            all &= square[k];
    }
    return all == 0xff;
}

IFMA_TARGET int florist_all_on_curve_ifma(const uint8_t *points, size_t count, const uint8_t *random)
{
    const size_t vectors = (count + IFMA_LANES - 1) / IFMA_LANES;
    vfe *right_side = aligned_alloc(sizeof(vint), (vectors + 1) * sizeof *right_side);
    if (right_side == NULL)
        return -1;
    int good = load_right_sides(right_side, points, count);
    if (good) {
        vfe products[SUBSETS];
        for (int round = 0; round < CHECK_ROUNDS; round++)
            round_products(products + SUBSETS_PER_ROUND * round, right_side, vectors,
                           random + vectors * round);
        good = are_squares(products);
    }
    free(right_side);
    return good;
}

#else

int florist_all_on_curve_ifma(const uint8_t *points, size_t count, const uint8_t *random)
{
    (void)points, (void)count, (void)random;
    abort();
}

#endif
