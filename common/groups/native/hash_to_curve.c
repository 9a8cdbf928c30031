#include "hash_to_curve.h"

#include "field25519.h"
#include "sha512.h"

void florist_expand_messages(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                             const uint8_t *dst, size_t dst_bytes)
{
    static const uint8_t padding[128]; /* every message starts with this block of zeros: hash it once */
    static const uint8_t length_and_zero[3] = {0, UNIFORM_BYTES, 0};
    const uint8_t dst_length = (uint8_t)dst_bytes, one = 1;
    sha512 padded;
    sha512_start(&padded);
    sha512_update(&padded, padding, sizeof padding);

    for (size_t i = 0; i < count; i++) {
        uint8_t digest[64];
        sha512 hash = padded;
        sha512_update(&hash, data + offsets[i], (size_t)(offsets[i + 1] - offsets[i]));
        sha512_update(&hash, length_and_zero, sizeof length_and_zero);
        sha512_update(&hash, dst, dst_bytes);
        sha512_update(&hash, &dst_length, 1);
        sha512_finish(&hash, digest);

        sha512_start(&hash);
        sha512_update(&hash, digest, sizeof digest);
        sha512_update(&hash, &one, 1);
        sha512_update(&hash, dst, dst_bytes);
        sha512_update(&hash, &dst_length, 1);
        sha512_finish(&hash, digest);
        memcpy(out + UNIFORM_BYTES * i, digest, UNIFORM_BYTES);
    }
}

/* 48 big-endian bytes, modulo p: low + 2^192 high, each half below 2^192. */
static fe load_uniform(const uint8_t bytes[UNIFORM_BYTES])
{
    static const fe two_to_192 = {{0, 0, 0, UINT64_C(1) << 39, 0}};
    uint8_t low[32] = {0}, high[32] = {0};
    for (int i = 0; i < 24; i++) {
        low[i] = bytes[47 - i];
        high[i] = bytes[23 - i];
    }
    return fe_add(fe_multiply(fe_load(high), two_to_192), fe_load(low));
}

/* Elements per inversion. */
#define BLOCK (32 * FE_LANES)

/* Inverts BLOCK non-zero elements with one inversion (Montgomery's trick), in FE_LANES interleaved
 * chains. */
static void invert_block(fe out[BLOCK], const fe a[BLOCK])
{
    /* out[i] = the product of the elements before i in its chain */
    fe running[FE_LANES], inverse[FE_LANES];
    for (int lane = 0; lane < FE_LANES; lane++)
        running[lane] = FE_ONE;
    for (int i = 0; i < BLOCK; i++) {
        out[i] = running[i % FE_LANES];
        running[i % FE_LANES] = fe_multiply(running[i % FE_LANES], a[i]);
    }
    fe_invert(inverse, running);
    for (int i = BLOCK - 1; i >= 0; i--) {
        out[i] = fe_multiply(out[i], inverse[i % FE_LANES]);
        inverse[i % FE_LANES] = fe_multiply(inverse[i % FE_LANES], a[i]);
    }
}

static void map_block(uint8_t *out, const uint8_t *uniform, size_t count)
{
    fe x[BLOCK], inverse[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
        /* 1 + 2 r^2 is never zero, because -1/2 is not a square. A short block is padded with ones. */
        x[i] = FE_ONE;
        if (i < count) {
            const fe square = fe_square(load_uniform(uniform + UNIFORM_BYTES * i));
            x[i] = fe_add(FE_ONE, fe_add(square, square));
        }
    }
    invert_block(inverse, x);

    for (size_t i = 0; i < count; i += FE_LANES) {
        fe first[FE_LANES], right_side[FE_LANES];
        uint64_t square[FE_LANES];
        for (int lane = 0; lane < FE_LANES; lane++) {
            first[lane] = fe_multiply(fe_negate(CURVE_A), inverse[i + lane]);
            right_side[lane] = curve_right_side(first[lane]);
        }
        fe_is_square(square, right_side);
        for (size_t lane = 0; lane < FE_LANES && i + lane < count; lane++) {
            const fe second = fe_negate(fe_add(CURVE_A, first[lane]));
            fe chosen;
            for (int j = 0; j < 5; j++)
                chosen.limb[j] = (first[lane].limb[j] & square[lane]) |
                                 (second.limb[j] & ~square[lane]);
            fe_store(out + 32 * (i + lane), chosen);
        }
    }
}

void florist_elligator2(uint8_t *out, const uint8_t *uniform, size_t count)
{
    for (size_t done = 0; done < count; done += BLOCK)
        map_block(out + 32 * done, uniform + UNIFORM_BYTES * done,
                  count - done < BLOCK ? count - done : BLOCK);
}
