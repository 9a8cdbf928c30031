#include "curve_check.h"

#include <stdlib.h>

#include "field25519.h"

/* A product of non-zero numbers is a square exactly when an even number of them are non-squares. So
 * if any right side is not a square, the product over a random subset is a non-square with
 * probability 1/2. The eight bits of a random byte assign a number to eight subsets at once: numbers
 * with the same byte are first multiplied together, with one multiplication each, and the product
 * over subset k is the product of the buckets whose index has bit k. */

#define BUCKETS 256
#define SUBSETS_PER_ROUND 8

/* Right sides computed at a time, so that they and the buckets of a round stay in the cache. */
#define BLOCK 256

/* Computes the right side of the curve equation for every canonical encoding except 0. */
static int load_block(fe right_side[], const uint8_t *points, size_t count)
{
    static const uint8_t zero[32];
    for (size_t i = 0; i < count; i++) {
        uint8_t canonical[32];
        const fe u = fe_load(points + 32 * i);
        fe_store(canonical, u);
        if (memcmp(canonical, points + 32 * i, 32) != 0 || memcmp(canonical, zero, 32) == 0)
            return 0;
        right_side[i] = curve_right_side(u);
    }
    return 1;
}

static int subset_products_are_squares(fe (*bucket)[BUCKETS])
{
    fe products[CHECK_ROUNDS * SUBSETS_PER_ROUND];
    for (int subset = 0; subset < CHECK_ROUNDS * SUBSETS_PER_ROUND; subset++) {
        products[subset] = FE_ONE;
        for (int i = 0; i < BUCKETS; i++)
            if (i >> subset % SUBSETS_PER_ROUND & 1)
                products[subset] =
                    fe_multiply(products[subset], bucket[subset / SUBSETS_PER_ROUND][i]);
    }
    uint64_t all = ~UINT64_C(0);
    for (int subset = 0; subset < CHECK_ROUNDS * SUBSETS_PER_ROUND; subset += FE_LANES) {
        uint64_t square[FE_LANES];
        fe_is_square(square, products + subset);
        for (int lane = 0; lane < FE_LANES; lane++)
            all &= square[lane];
    }
    return all != 0;
}

int florist_all_on_curve(const uint8_t *points, size_t count, const uint8_t *random)
{
    fe(*bucket)[BUCKETS] = malloc(CHECK_ROUNDS * sizeof *bucket);
    if (bucket == NULL)
        return -1;
    for (int round = 0; round < CHECK_ROUNDS; round++)
        for (int i = 0; i < BUCKETS; i++)
            bucket[round][i] = FE_ONE;

    int good = 1;
    for (size_t done = 0; good && done < count; done += BLOCK) {
        fe right_side[BLOCK];
        const size_t now = count - done < BLOCK ? count - done : BLOCK;
        good = load_block(right_side, points + 32 * done, now);
        for (int round = 0; good && round < CHECK_ROUNDS; round++)
            for (size_t i = 0; i < now; i++) {
                fe *chosen = &bucket[round][random[CHECK_ROUNDS * done + now * round + i]];
                *chosen = fe_multiply(*chosen, right_side[i]);
            }
    }
    good = good && subset_products_are_squares(bucket);
    free(bucket);
    return good;
}
