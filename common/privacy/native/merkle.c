#include "merkle.h"

void florist_leaf_hashes(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                         const uint8_t *salts, sha256_compressor *compress)
{
    for (size_t i = 0; i < count; i++) {
        sha256 hash;
        sha256_start(&hash, compress);
        sha256_update(&hash, (const uint8_t[]){0}, 1);
        sha256_update(&hash, salts + SALT_BYTES * i, SALT_BYTES);
        sha256_update(&hash, data + offsets[i], (size_t)(offsets[i + 1] - offsets[i]));
        sha256_finish(&hash, out + SHA256_BYTES * i);
    }
}

void florist_node_hashes(uint8_t *out, const uint8_t *children, size_t count,
                         sha256_compressor *compress)
{
    for (size_t i = 0; i < count; i++) {
        sha256 hash;
        sha256_start(&hash, compress);
        sha256_update(&hash, (const uint8_t[]){1}, 1);
        sha256_update(&hash, children + 2 * SHA256_BYTES * i, 2 * SHA256_BYTES);
        sha256_finish(&hash, out + SHA256_BYTES * i);
    }
}
