/* Functions on whole arrays from AES-128. They need `florist_aes_ni_available()`. */
#ifndef FLORIST_AES_STREAMS_H
#define FLORIST_AES_STREAMS_H

#include <stddef.h>
#include <stdint.h>

/* Writes for each of `count` keys of 16 bytes the first 16 · `blocks` bytes of its stream `number`:
 * AES of `number` and then 0, 1, 2, ..., each as eight bytes in big-endian order. */
void florist_key_streams(uint8_t *out, const uint8_t *keys, size_t count, size_t blocks,
                         uint64_t number);

/* Writes π(π(x) ^ i) ^ π(x) for each of `count` blocks of 16 bytes, where π is AES with `key`, x the
 * block ^ `offset`, and i is `first` + its index as a little-endian integer. `out` may be `blocks`. */
void florist_tweaked_hashes(uint8_t *out, const uint8_t *blocks, size_t count,
                            const uint8_t key[16], const uint8_t offset[16], uint64_t first);

/* Writes for each of `count` rows of `row_bytes` bytes the row ^ its pad. Block j of a pad is
 * π(k ^ j) ^ k ^ j, where π is AES with `key`, k the row's key of 16 bytes in `keys`, and j a
 * little-endian integer. `out` may be `rows`, and otherwise overlaps nothing. */
void florist_encrypt_rows(uint8_t *out, const uint8_t *rows, size_t count, size_t row_bytes,
                          const uint8_t key[16], const uint8_t *keys);

#endif
