/* hash_to_curve.c on eight messages and numbers at a time, in AVX-512 IFMA. */
#include "hash_to_curve.h"

#include "field25519_ifma.h"
#include "sha512_lanes.h"

#include <stdlib.h>

#ifdef FLORIST_HAVE_IFMA

/* ---- messages -------------------------------------------------------------- */

#define SHA_BLOCK 128
/* A hash ends with a byte 0x80 and the length in sixteen bytes. */
#define SHA_END 17

/* Converts words between big-endian bytes and numbers. */
IFMA_INLINE vint reverse_bytes(vint words)
{
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_set_epi8(
                                          8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)));
}

/* The second hash of a message: its first eight words are the first hash, the others are these. */
static void second_block(uint8_t block[SHA_BLOCK], const uint8_t *dst, size_t dst_bytes)
{
    memset(block, 0, SHA_BLOCK);
    block[64] = 1;
    memcpy(block + 65, dst, dst_bytes);
    block[65 + dst_bytes] = (uint8_t)dst_bytes;
    block[66 + dst_bytes] = 0x80;
    store_be64(block + SHA_BLOCK - 8, 8 * (66 + dst_bytes));
}

/* Hashes eight messages, each of which fits into one block with `ending` and the padding of SHA-512.
 * `start` is the state after the block of zeros. */
static IFMA_TARGET void expand_lanes(uint8_t *out, const uint8_t *data, const int64_t *offsets,
                                     const uint8_t *ending, size_t ending_bytes,
                                     const uint64_t start[8], const uint8_t second[SHA_BLOCK])
{
    const vint index = _mm512_set_epi64(42, 36, 30, 24, 18, 12, 6, 0);
    uint8_t blocks[IFMA_LANES][SHA_BLOCK] = {{0}};
    for (int lane = 0; lane < IFMA_LANES; lane++) {
        const size_t bytes = (size_t)(offsets[lane + 1] - offsets[lane]);
        memcpy(blocks[lane], data + offsets[lane], bytes);
        memcpy(blocks[lane] + bytes, ending, ending_bytes);
        blocks[lane][bytes + ending_bytes] = 0x80;
        store_be64(blocks[lane] + SHA_BLOCK - 8, 8 * (SHA_BLOCK + bytes + ending_bytes));
    }
    vint state[8], w[16];
    for (int i = 0; i < 16; i++)
        w[i] = reverse_bytes(_mm512_i64gather_epi64(
            _mm512_set_epi64(112, 96, 80, 64, 48, 32, 16, 0), &blocks[0][8 * i], 8));
    for (int i = 0; i < 8; i++)
        state[i] = VINT(start[i]);
    sha512_compress_lanes(state, w);

    sha512 initial;
    sha512_start(&initial);
    for (int i = 0; i < 8; i++) {
        w[i] = state[i];
        w[i + 8] = VINT(load_be64(second + 64 + 8 * i));
        state[i] = VINT(initial.state[i]);
    }
    sha512_compress_lanes(state, w);
    for (int i = 0; i < UNIFORM_BYTES / 8; i++)
        _mm512_i64scatter_epi64(out + 8 * i, index, reverse_bytes(state[i]), 8);
}

void florist_expand_messages_ifma(uint8_t *out, const uint8_t *data, const int64_t *offsets,
                                  size_t count, const uint8_t *dst, size_t dst_bytes)
{
    static const uint8_t zeros[SHA_BLOCK];
    uint8_t ending[3 + 255 + 1] = {0, UNIFORM_BYTES, 0}, second[SHA_BLOCK];
    const size_t ending_bytes = 3 + dst_bytes + 1;
    const int one_block = 66 + dst_bytes + SHA_END <= SHA_BLOCK && ending_bytes + SHA_END <= SHA_BLOCK;
    sha512 padded;
    if (one_block) {
        memcpy(ending + 3, dst, dst_bytes);
        ending[3 + dst_bytes] = (uint8_t)dst_bytes;
        second_block(second, dst, dst_bytes);
        sha512_start(&padded);
        sha512_update(&padded, zeros, sizeof zeros);
    }
    for (size_t done = 0; done < count; done += IFMA_LANES) {
        const size_t now = count - done < IFMA_LANES ? count - done : IFMA_LANES;
        int in_lanes = one_block && now == IFMA_LANES;
        for (size_t i = done; in_lanes && i < done + now; i++)
            in_lanes = (size_t)(offsets[i + 1] - offsets[i]) <= SHA_BLOCK - SHA_END - ending_bytes;
        if (in_lanes)
            expand_lanes(out + UNIFORM_BYTES * done, data, offsets + done, ending, ending_bytes,
                         padded.state, second);
        else
            florist_expand_messages(out + UNIFORM_BYTES * done, data, offsets + done, now, dst,
                                    dst_bytes);
    }
}

/* ---- the map ----------------------------------------------------------------- */

/* Vectors per inversion. */
#define BLOCK (8 * IFMA_GROUP)

/* Reduces 48 big-endian bytes each modulo p. Of the six words, the lowest 255 bits are five limbs; the
 * 129 bits above, as three limbs, count 19 times. */
IFMA_INLINE vfe load_uniform(const uint8_t *bytes, __mmask8 lanes)
{
    const vint index = _mm512_set_epi64(42, 36, 30, 24, 18, 12, 6, 0);
    vint w[6];
    UNROLL for (int i = 0; i < 6; i++)
        w[i] = reverse_bytes(
            _mm512_mask_i64gather_epi64(VZERO, lanes, index, bytes + 40 - 8 * i, 8));
    const vfe low = from_words((words){{w[0], w[1], w[2], w[3]}});
    const vint high[3] = {limb_of(w[3], w[4], 63), limb_of(w[4], w[5], 50), limb_of(w[5], VZERO, 37)};
    wide sum;
    UNROLL for (int t = 0; t < 5; t++)
        sum.v[t] = low.v[t];
    UNROLL for (int t = 0; t < 3; t++) { /* 16 + 2 + 1 */
        sum.v[t] = add(add(sum.v[t], high[t]), add(high[t], high[t]));
        sum.v[t] = add(sum.v[t], shift_left(high[t], 4));
    }
    return norm(sum);
}

/* -(A + u) */
IFMA_INLINE vfe second_candidate(const vfe *u)
{
    wide r;
    UNROLL for (int t = 0; t < 5; t++) /* 4p's limbs, almost 2^53, exceed u's and A's sum */
        r.v[t] = _mm512_sub_epi64(VINT(4 * P_LIMB(t) - (t ? 0 : CURVE_A_NUMBER)),
                                  _mm512_and_si512(u->v[t], VINT((UINT64_C(1) << 52) - 1)));
    return norm(r);
}

static IFMA_TARGET void map_block(uint8_t *out, const uint8_t *uniform, size_t count)
{
    const vfe minus_a = second_candidate(&(vfe){{VZERO, VZERO, VZERO, VZERO, VZERO}});
    vfe x[BLOCK], inverse[BLOCK];
    const size_t vectors = (count + IFMA_LANES - 1) / IFMA_LANES;
    for (size_t i = 0; i < vectors; i++) {
        /* 1 + 2 r^2 is never zero, because -1/2 is not a square. */
        const vfe r = load_uniform(uniform + UNIFORM_BYTES * IFMA_LANES * i,
                                   lanes_of(count - IFMA_LANES * i));
        const wide square = sqr(&r, PLAIN);
        x[i] = norm(wide_add_one(wide_add(square, square)));
    }
    vfe_invert_all(inverse, x, vectors);

    for (size_t i = 0; i < vectors; i += IFMA_GROUP) {
        vfe first[IFMA_GROUP], right_side[IFMA_GROUP];
        __mmask8 square[IFMA_GROUP];
        for (size_t k = 0; k < IFMA_GROUP; k++) {
            /* Beyond the end, the last vector again; its result is not used. */
            first[k] = vfe_mul(&minus_a, &inverse[i + k < vectors ? i + k : vectors - 1]);
            right_side[k] = vfe_right_side(&first[k]);
        }
        vfe_is_square(square, right_side);
        for (size_t k = 0; k < IFMA_GROUP && i + k < vectors; k++) {
            const vfe second = second_candidate(&first[k]);
            const vfe chosen = vfe_choose(&second, &first[k], square[k]);
            words_store(out + 32 * IFMA_LANES * (i + k), lanes_of(count - IFMA_LANES * (i + k)),
                        to_words(&chosen));
        }
    }
}

void florist_elligator2_ifma(uint8_t *out, const uint8_t *uniform, size_t count)
{
    const size_t most = BLOCK * IFMA_LANES;
    for (size_t done = 0; done < count; done += most)
        map_block(out + 32 * done, uniform + UNIFORM_BYTES * done,
                  count - done < most ? count - done : most);
}

#else

void florist_expand_messages_ifma(uint8_t *out, const uint8_t *data, const int64_t *offsets,
                                  size_t count, const uint8_t *dst, size_t dst_bytes)
{
    (void)out, (void)data, (void)offsets, (void)count, (void)dst, (void)dst_bytes;
    abort();
}

void florist_elligator2_ifma(uint8_t *out, const uint8_t *uniform, size_t count)
{
    (void)out, (void)uniform, (void)count;
    abort();
}

#endif
