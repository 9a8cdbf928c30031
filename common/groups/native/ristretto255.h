/* The group ristretto255 of RFC 9496 on whole arrays. See ristretto255_arrays.py.
 *
 * A point is 20 words: X, Y, Z and T of edwards25519 in extended coordinates, five limbs each
 * (field25519.h). Words that no function here wrote give a wrong result, but no access outside.
 * Scalars have 32 bytes, little-endian, and need not be reduced. Unless a comment says otherwise, no
 * branch and no address depends on the content of an array.
 */
#ifndef FLORIST_RISTRETTO255_H
#define FLORIST_RISTRETTO255_H

#include <stddef.h>
#include <stdint.h>

#define POINT_WORDS 20
#define SCALAR_BYTES 32
/* Uniform bytes that are reduced to a scalar. */
#define WIDE_BYTES 64
/* Multiples of a point: TABLE_ROWS digits in base 16, each with TABLE_ENTRIES entries. */
#define TABLE_ROWS 64
#define TABLE_ENTRIES 8
#define TABLE_WORDS (TABLE_ROWS * TABLE_ENTRIES * 16)

/* Decodes elements of 32 bytes to points with Z = 1. valid[i] is 1, or 0 with the neutral element as
 * the point. Returns 1 if all are valid, else 0. */
int florist_ristretto_decode(uint64_t *points, uint8_t *valid, const uint8_t *encoded, size_t count);

void florist_ristretto_encode(uint8_t *encoded, const uint64_t *points, size_t count);

/* out[i] = a[i] + b[i]; b[0] for all i if `same`. `out` may be `a`. */
void florist_ristretto_add(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t count, int same);

/* out[i] = scalar * points[i]. `out` may be `points`. */
void florist_ristretto_multiply(uint64_t *out, const uint64_t *points, size_t count,
                                const uint8_t scalar[SCALAR_BYTES]);

/* The table of a point, for many multiplications of it. */
void florist_ristretto_table(uint64_t table[TABLE_WORDS], const uint64_t point[POINT_WORDS]);

/* out[i] = scalars[i] * the point of the table. */
void florist_ristretto_multiply_table(uint64_t *out, const uint64_t table[TABLE_WORDS],
                                      const uint8_t *scalars, size_t count);

/* The low 64 bits of each point's affine y. A point and its negative have the same y, and no others. */
void florist_ristretto_ordinates(uint64_t *out, const uint64_t *points, size_t count);

/* Adds both points of pair rows[i] to the pair `coordinates[i][c]` of sums, for each i < count and
 * c < columns. The points have Z = 1, as decode writes them. Returns 0 and changes nothing if a row
 * or a coordinate is out of range, else 1. Addresses depend on `rows` and `coordinates`. */
int florist_ristretto_accumulate(uint64_t *sums, size_t sum_count, const uint64_t *pairs,
                                 size_t pair_count, const int64_t *rows, size_t count,
                                 const int32_t *coordinates, size_t columns);

/* The same, eight at a time. Call only if florist_ifma_available(). */
int florist_ristretto_decode_ifma(uint64_t *points, uint8_t *valid, const uint8_t *encoded,
                                  size_t count);
void florist_ristretto_encode_ifma(uint8_t *encoded, const uint64_t *points, size_t count);
void florist_ristretto_multiply_table_ifma(uint64_t *out, const uint64_t table[TABLE_WORDS],
                                           const uint8_t *scalars, size_t count);
int florist_ristretto_accumulate_ifma(uint64_t *sums, size_t sum_count, const uint64_t *pairs,
                                      size_t pair_count, const int64_t *rows, size_t count,
                                      const int32_t *coordinates, size_t columns);

/* Reduces numbers of 64 bytes modulo the group's order. */
void florist_scalars_reduce(uint8_t *out, const uint8_t *wide, size_t count);

/* out[i] = scalars[i] * factor + values[i], modulo the group's order. */
void florist_scalars_multiply_add(uint8_t *out, const uint8_t *scalars, const uint8_t factor[SCALAR_BYTES],
                                  const int64_t *values, size_t count);

#endif
