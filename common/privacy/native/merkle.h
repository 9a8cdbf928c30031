/* The hashes of a Merkle tree, as in RFC 9162 but with a salt in each leaf. */
#ifndef FLORIST_MERKLE_H
#define FLORIST_MERKLE_H

#include <stddef.h>
#include <stdint.h>

#include "sha256.h"

#define SALT_BYTES 16

/* Writes SHA-256(0x00 || salt || ID) of each of `count` IDs to `out`. ID i is
 * data[offsets[i]..offsets[i + 1]], and its salt is salts[16 i..16 i + 16]; `out` overlaps neither. */
void florist_leaf_hashes(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                         const uint8_t *salts, sha256_compressor *compress);

/* Writes SHA-256(0x01 || left || right) of each of `count` pairs of hashes to `out`, which does not
 * overlap `children`. */
void florist_node_hashes(uint8_t *out, const uint8_t *children, size_t count,
                         sha256_compressor *compress);

#endif
