/* Matrices of bits, stored by columns. They need `florist_aes_ni_available()`. */
#ifndef FLORIST_BIT_COLUMNS_H
#define FLORIST_BIT_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define BIT_COLUMNS 128

/* Transposes the first 128 · `blocks` bits of 128 columns, which are `stride` >= 16 · `blocks` bytes
 * apart, into as many rows of 16 bytes. Bit i of a byte has the value 1 << i, in columns and rows. */
void florist_transpose_bits(uint8_t *rows, const uint8_t *columns, size_t stride, size_t blocks);

/* Writes 16 bytes for each of `count` columns, which are `stride` >= 16 · `blocks` bytes apart: the
 * sum of block b times point^(`blocks` - b) over its first `blocks` blocks of 16 bytes, as elements of
 * GF(2^128) modulo x^128 + x^7 + x^2 + x + 1; bit i of a block is the coefficient of x^i. */
void florist_column_hashes(uint8_t *out, const uint8_t *columns, size_t count, size_t stride,
                           size_t blocks, const uint8_t point[16]);

#endif
