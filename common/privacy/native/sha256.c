#include "sha256.h"

static inline uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static inline uint32_t load_be32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

#define ROUND(a, b, c, d, e, f, g, h, i)                                                            \
    do {                                                                                           \
        h += (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + (g ^ (e & (f ^ g))) + \
             SHA256_ROUND[i] + w[(i) & 15];                                                        \
        d += h;                                                                                    \
        h += (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +                    \
             ((a & b) | (c & (a | b)));                                                            \
    } while (0)

static void compress_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[16];
    for (int i = 0; i < 16; i++)
        w[i] = load_be32(block + 4 * i);

    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        if (i >= 16)
            for (int k = i; k < i + 8; k++) {
                const uint32_t w1 = w[(k + 1) & 15], w14 = w[(k + 14) & 15];
                w[k & 15] += w[(k + 9) & 15] +
                             (rotate_right(w1, 7) ^ rotate_right(w1, 18) ^ w1 >> 3) +
                             (rotate_right(w14, 17) ^ rotate_right(w14, 19) ^ w14 >> 10);
            }
        /* Eight rounds rename the variables back to what they were. */
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void florist_sha256_compress(uint32_t (*states)[8], const uint8_t *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        compress_block(states[i], blocks + SHA256_BLOCK * i);
}
