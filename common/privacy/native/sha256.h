/* SHA-256 (FIPS 180-4). */
#ifndef FLORIST_SHA256_H
#define FLORIST_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHA256_BLOCK 64
#define SHA256_BYTES 32

/* Mixes one block of 64 bytes into each of `count` states, those of different messages: a CPU can
 * work on several at a time. */
typedef void sha256_compressor(uint32_t (*states)[8], const uint8_t *blocks, size_t count);

/* In portable C. */
void florist_sha256_compress(uint32_t (*states)[8], const uint8_t *blocks, size_t count);

/* 1 if this build and this CPU have the SHA instructions of x86, else 0. */
int florist_sha_ni_available(void);

/* With those instructions; aborts if this build does not have them. */
void florist_sha256_compress_ni(uint32_t (*states)[8], const uint8_t *blocks, size_t count);

static const uint32_t SHA256_INITIAL[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint32_t SHA256_ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* Writes the digest that the state after the last block stands for. */
static inline void sha256_write(uint8_t digest[SHA256_BYTES], const uint32_t state[8])
{
    for (int i = 0; i < 8; i++) {
        const uint32_t word = state[i];
        digest[4 * i] = (uint8_t)(word >> 24);
        digest[4 * i + 1] = (uint8_t)(word >> 16);
        digest[4 * i + 2] = (uint8_t)(word >> 8);
        digest[4 * i + 3] = (uint8_t)word;
    }
}

/* A message that is hashed part by part. */
typedef struct {
    sha256_compressor *compress;
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[SHA256_BLOCK];
} sha256;

static inline void sha256_start(sha256 *hash, sha256_compressor *compress)
{
    memcpy(hash->state, SHA256_INITIAL, sizeof SHA256_INITIAL);
    hash->compress = compress;
    hash->length = 0;
}

static inline void sha256_update(sha256 *hash, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const size_t used = hash->length % SHA256_BLOCK;
        const size_t taken = count < SHA256_BLOCK - used ? count : SHA256_BLOCK - used;
        memcpy(hash->block + used, bytes, taken);
        hash->length += taken, bytes += taken, count -= taken;
        if (used + taken == SHA256_BLOCK)
            hash->compress(&hash->state, hash->block, 1);
    }
}

static inline void sha256_finish(sha256 *hash, uint8_t digest[SHA256_BYTES])
{
    size_t used = hash->length % SHA256_BLOCK;
    hash->block[used++] = 0x80;
    if (used > 56) {
        memset(hash->block + used, 0, SHA256_BLOCK - used);
        hash->compress(&hash->state, hash->block, 1);
        used = 0;
    }
    memset(hash->block + used, 0, 56 - used);
    for (int i = 0; i < 8; i++)
        hash->block[63 - i] = (uint8_t)(hash->length << 3 >> 8 * i);
    hash->compress(&hash->state, hash->block, 1);
    sha256_write(digest, hash->state);
}

#endif
