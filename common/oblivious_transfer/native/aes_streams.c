#include "aes_streams.h"

#include "aes_ni.h"

#ifdef FLORIST_HAVE_AES_NI

#include <string.h>

/* Blocks at a time: enough to fill the pipeline of the AES units. */
#define LANES 8

AES_INLINE __m128i counter_block(uint64_t number, uint64_t index)
{
    return _mm_set_epi64x((long long)__builtin_bswap64(index), (long long)__builtin_bswap64(number));
}

WITH_AES static void key_stream(uint8_t *out, const uint8_t *key_bytes, size_t blocks,
                                uint64_t number)
{
    aes_key key;
    __m128i lanes[LANES];
    size_t at = 0;
    aes_expand_key(&key, key_bytes);
    for (; blocks - at >= LANES; at += LANES) {
        for (int i = 0; i < LANES; i++)
            lanes[i] = counter_block(number, at + (size_t)i);
        aes_encrypt(&key, lanes, LANES);
        for (int i = 0; i < LANES; i++)
            aes_store(out + AES_BLOCK * (at + (size_t)i), lanes[i]);
    }
    for (; at < blocks; at++) {
        lanes[0] = counter_block(number, at);
        aes_encrypt(&key, lanes, 1);
        aes_store(out + AES_BLOCK * at, lanes[0]);
    }
}

void florist_key_streams(uint8_t *out, const uint8_t *keys, size_t count, size_t blocks,
                         uint64_t number)
{
    for (size_t i = 0; i < count; i++)
        key_stream(out + AES_BLOCK * blocks * i, keys + AES_BLOCK * i, blocks, number);
}

/* Hashes `count` blocks; `count` is a constant, at most LANES. */
AES_INLINE void hash_blocks(uint8_t *out, const uint8_t *blocks, const int count,
                            const aes_key *key, __m128i offset, uint64_t tweak)
{
    __m128i inner[LANES], outer[LANES];
    for (int i = 0; i < count; i++)
        inner[i] = _mm_xor_si128(aes_load(blocks + AES_BLOCK * i), offset);
    aes_encrypt(key, inner, count);
    for (int i = 0; i < count; i++)
        outer[i] = _mm_xor_si128(inner[i], _mm_set_epi64x(0, (long long)(tweak + (uint64_t)i)));
    aes_encrypt(key, outer, count);
    for (int i = 0; i < count; i++)
        aes_store(out + AES_BLOCK * i, _mm_xor_si128(inner[i], outer[i]));
}

WITH_AES void florist_tweaked_hashes(uint8_t *out, const uint8_t *blocks, size_t count,
                                     const uint8_t key_bytes[16], const uint8_t offset_bytes[16],
                                     uint64_t first)
{
    const __m128i offset = aes_load(offset_bytes);
    aes_key key;
    size_t at = 0;
    aes_expand_key(&key, key_bytes);
    for (; count - at >= LANES; at += LANES)
        hash_blocks(out + AES_BLOCK * at, blocks + AES_BLOCK * at, LANES, &key, offset, first + at);
    for (; at < count; at++)
        hash_blocks(out + AES_BLOCK * at, blocks + AES_BLOCK * at, 1, &key, offset, first + at);
}

/* Blocks of several rows, the last of a row perhaps shorter, that wait to be encrypted together. */
typedef struct {
    __m128i inputs[LANES];
    const uint8_t *from[LANES];
    uint8_t *to[LANES];
    size_t bytes[LANES];
    int count;
} pending_blocks;

/* Copies fewer than 16 bytes by copies of constant sizes, which are single instructions. */
AES_INLINE void copy_part(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes & 8)
        memcpy(to, from, 8), to += 8, from += 8;
    if (bytes & 4)
        memcpy(to, from, 4), to += 4, from += 4;
    if (bytes & 2)
        memcpy(to, from, 2), to += 2, from += 2;
    if (bytes & 1)
        *to = *from;
}

/* Encrypts what waits, and unused lanes with it. */
AES_INLINE void flush(pending_blocks *pending, const aes_key *key)
{
    __m128i lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = pending->inputs[i];
    aes_encrypt(key, lanes, LANES);
    for (int i = 0; i < pending->count; i++) {
        uint8_t block[AES_BLOCK] = {0};
        const __m128i pad = _mm_xor_si128(lanes[i], pending->inputs[i]);
        if (pending->bytes[i] == AES_BLOCK) {
            aes_store(pending->to[i], _mm_xor_si128(pad, aes_load(pending->from[i])));
            continue;
        }
        copy_part(block, pending->from[i], pending->bytes[i]);
        aes_store(block, _mm_xor_si128(pad, aes_load(block)));
        copy_part(pending->to[i], block, pending->bytes[i]);
    }
    pending->count = 0;
}

/* Encrypts blocks `first` to `first` + `count` - 1 of a row; `count` is a constant, at most LANES. */
AES_INLINE void encrypt_blocks(uint8_t *out, const uint8_t *row, size_t first, const int count,
                               const aes_key *key, __m128i row_key)
{
    __m128i inputs[LANES], lanes[LANES];
    for (int i = 0; i < count; i++) {
        inputs[i] = _mm_xor_si128(row_key, _mm_set_epi64x(0, (long long)(first + (size_t)i)));
        lanes[i] = inputs[i];
    }
    aes_encrypt(key, lanes, count);
    for (int i = 0; i < count; i++) {
        const size_t at = AES_BLOCK * (first + (size_t)i);
        const __m128i pad = _mm_xor_si128(lanes[i], inputs[i]);
        aes_store(out + at, _mm_xor_si128(pad, aes_load(row + at)));
    }
}

WITH_AES void florist_encrypt_rows(uint8_t *out, const uint8_t *rows, size_t count, size_t row_bytes,
                                   const uint8_t key_bytes[16], const uint8_t *keys)
{
    const size_t whole = row_bytes / AES_BLOCK, rest = row_bytes % AES_BLOCK;
    aes_key key;
    pending_blocks pending;
    memset(&pending, 0, sizeof pending);
    aes_expand_key(&key, key_bytes);
    for (size_t i = 0; i < count; i++) {
        const __m128i row_key = aes_load(keys + AES_BLOCK * i);
        const uint8_t *row = rows + row_bytes * i;
        uint8_t *to = out + row_bytes * i;
        size_t block = 0;
        for (; whole - block >= LANES; block += LANES)
            encrypt_blocks(to, row, block, LANES, &key, row_key);
        if (whole - block >= LANES / 2) {
            encrypt_blocks(to, row, block, LANES / 2, &key, row_key);
            block += LANES / 2;
        }
        for (; block < whole + (rest > 0); block++) {
            const int lane = pending.count++;
            pending.inputs[lane] = _mm_xor_si128(row_key, _mm_set_epi64x(0, (long long)block));
            pending.from[lane] = row + AES_BLOCK * block;
            pending.to[lane] = to + AES_BLOCK * block;
            pending.bytes[lane] = block < whole ? AES_BLOCK : rest;
            if (pending.count == LANES)
                flush(&pending, &key);
        }
    }
    flush(&pending, &key);
}

#else

#include <stdlib.h>

void florist_key_streams(uint8_t *out, const uint8_t *keys, size_t count, size_t blocks,
                         uint64_t number)
{
    (void)out, (void)keys, (void)count, (void)blocks, (void)number;
    abort();
}

void florist_tweaked_hashes(uint8_t *out, const uint8_t *blocks, size_t count,
                            const uint8_t key[16], const uint8_t offset[16], uint64_t first)
{
    (void)out, (void)blocks, (void)count, (void)key, (void)offset, (void)first;
    abort();
}

void florist_encrypt_rows(uint8_t *out, const uint8_t *rows, size_t count, size_t row_bytes,
                          const uint8_t key[16], const uint8_t *keys)
{
    (void)out, (void)rows, (void)count, (void)row_bytes, (void)key, (void)keys;
    abort();
}

#endif
