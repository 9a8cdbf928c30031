/* Every combination of the smallest and the greatest limbs that a product may be given, with the bounds
 * of field25519_ifma.h checked (built with -DFLORIST_CHECK_BOUNDS), against the scalar arithmetic. */
#include "field25519_ifma.h"

#include <stdio.h>

#ifdef FLORIST_HAVE_IFMA

static fe chosen_limbs(int choice)
{
    fe a;
    for (int t = 0; t < 5; t++)
        a.limb[t] = !(choice >> t & 1) ? 0
                    : t == 0           ? (UINT64_C(1) << 51) + (1 << 17) - 1
                                       : (UINT64_C(1) << 52) - 1;
    return a;
}

IFMA_TARGET static vfe in_all_lanes(fe a)
{
    vfe r;
    for (int t = 0; t < 5; t++)
        r.v[t] = VINT(a.limb[t]);
    return r;
}

IFMA_TARGET static void check_equal(wide got, fe wanted)
{
    uint8_t bytes[IFMA_LANES * 32], expected[32];
    const vfe reduced = norm(got);
    words_store(bytes, 0xff, to_words(&reduced));
    fe_store(expected, wanted);
    for (int lane = 0; lane < IFMA_LANES; lane++)
        assert(memcmp(bytes + 32 * lane, expected, 32) == 0);
}

IFMA_TARGET int main(void)
{
    if (!florist_ifma_available())
        return 77;
    const vfe all = in_all_lanes(chosen_limbs(31));
    const wide greatest = sqr(&all, PLAIN);
    for (int i = 0; i < 32; i++) {
        const fe a = chosen_limbs(i), a_greatest = fe_multiply(chosen_limbs(31), chosen_limbs(31));
        const vfe f = in_all_lanes(a);
        const wide square = sqr(&f, BIASED);
        check_equal(sqr(&f, PLAIN), fe_square(a));
        check_equal(square, fe_square(a));
        check_equal(wide_sub(square, greatest), fe_add(fe_square(a), fe_negate(a_greatest)));
        check_equal(add_small_multiple(square, &f, 486662),
                    fe_add(fe_square(a), fe_multiply(a, CURVE_A)));
        for (int j = 0; j < 32; j++) {
            const fe b = chosen_limbs(j);
            const vfe g = in_all_lanes(b);
            const wide product = mul(&f, &g, BIASED);
            check_equal(mul(&f, &g, PLAIN), fe_multiply(a, b));
            check_equal(product, fe_multiply(a, b));
            check_equal(wide_sub(product, greatest), fe_add(fe_multiply(a, b), fe_negate(a_greatest)));
            check_equal(wide_add(product, greatest), fe_add(fe_multiply(a, b), a_greatest));
        }
    }
    for (int i = 0; i < 32; i++) { /* carries out of, and into, every limb */
        fe limbs;
        wide w;
        for (int t = 0; t < 5; t++) {
            limbs.limb[t] = i >> t & 1 ? (UINT64_C(1) << 63) - (UINT64_C(1) << 13) : 0;
            w.v[t] = VINT(limbs.limb[t]);
        }
        check_equal(w, fe_carry(limbs));
    }
    puts("all bounds held");
    return 0;
}

#else

int main(void)
{
    return 77;
}

#endif
