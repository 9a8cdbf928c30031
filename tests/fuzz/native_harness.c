/* Runs the native kernels on random input in buffers of exactly the size that they may use, so that
 * the sanitizers detect every access outside. Arguments: seconds, seed. See native_sanitized.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aes_ni.h"
#include "aes_streams.h"
#include "bit_columns.h"
#include "curve_check.h"
#include "embedding_rows.h"
#include "hash_to_curve.h"
#include "ifma.h"
#include "merkle.h"
#include "ristretto255.h"
#include "x25519_avx2.h"
#include "x25519_ifma.h"

#define MOST 40

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *filled(size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        abort();
    const unsigned kind = draw() % 4;
    for (size_t i = 0; i < size; i++)
        bytes[i] = kind == 0 ? 0 : kind == 1 ? 0xff : (uint8_t)draw();
    return bytes;
}

static void require_equal(const void *one, const void *other, size_t size, const char *what)
{
    if (memcmp(one, other, size)) {
        fprintf(stderr, "the kernels for %s differ\n", what);
        abort();
    }
}

static void try_groups(void)
{
    const size_t count = draw() % MOST, dst_bytes = draw() % 256;
    uint8_t *points = filled(32 * count), *scalar = filled(32), *dst = filled(dst_bytes);
    uint8_t *random = filled(CHECK_ROUNDS * count), *uniform = filled(UNIFORM_BYTES * count);
    uint8_t *one = filled(UNIFORM_BYTES * count), *other = filled(UNIFORM_BYTES * count);
    int64_t *offsets = filled((count + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++)
        offsets[i + 1] = offsets[i] + (int64_t)(draw() % 300);
    uint8_t *data = filled((size_t)offsets[count]);

    florist_all_on_curve(points, count, random);
    florist_expand_messages(one, data, offsets, count, dst, dst_bytes);
    if (florist_ifma_available()) {
        florist_all_on_curve_ifma(points, count, random);
        florist_expand_messages_ifma(other, data, offsets, count, dst, dst_bytes);
        require_equal(one, other, UNIFORM_BYTES * count, "messages");
    }
    free(one);
    free(other);
    one = filled(32 * count);
    other = filled(32 * count);
    florist_elligator2(one, uniform, count);
    if (florist_ifma_available()) {
        florist_elligator2_ifma(other, uniform, count);
        require_equal(one, other, 32 * count, "Elligator 2");
        florist_x25519_ifma(one, points, count, scalar);
    }
    if (florist_x25519_avx2_available()) {
        florist_x25519_avx2(other, points, count, scalar);
        if (florist_ifma_available())
            require_equal(one, other, 32 * count, "X25519");
    }
    free(points), free(scalar), free(dst), free(random), free(uniform);
    free(one), free(other), free(offsets), free(data);
}

static void try_ristretto(void)
{
    const size_t count = draw() % MOST, sums = 1 + draw() % 30, columns = draw() % 12;
    uint8_t *encoded = filled(32 * count), *again = filled(32 * count), *valid = filled(count);
    uint8_t *wide = filled(WIDE_BYTES * count), *scalars = filled(SCALAR_BYTES * count);
    uint8_t *factor = filled(SCALAR_BYTES);
    uint64_t *points = filled(count * POINT_WORDS * sizeof *points), *base = filled(POINT_WORDS * 8);
    uint64_t *other = filled(count * POINT_WORDS * sizeof *other), *ordinates = filled(8 * count);
    uint64_t *table = filled(TABLE_WORDS * sizeof *table);
    uint64_t *accumulated = filled(2 * sums * POINT_WORDS * sizeof *accumulated);
    int64_t *values = filled(count * sizeof *values), *rows = filled(count * sizeof *rows);
    int32_t *coordinates = filled(count * columns * sizeof *coordinates);

    florist_scalars_multiply_add(scalars, scalars, factor, values, count);
    florist_scalars_reduce(scalars, wide, count);
    florist_ristretto_table(table, base); /* any words */
    florist_ristretto_multiply_table(points, table, scalars, count);
    florist_ristretto_encode(encoded, points, count);

    /* Any bytes; what is valid has one encoding, after arithmetic as well. */
    free(encoded);
    encoded = filled(32 * count);
    florist_ristretto_decode(points, valid, encoded, count);
    florist_ristretto_encode(again, points, count);
    for (size_t i = 0; i < count; i++)
        if (valid[i])
            require_equal(again + 32 * i, encoded + 32 * i, 32, "valid elements");
    if (florist_ifma_available()) {
        uint8_t *valid_too = filled(count), *again_too = filled(32 * count);
        florist_ristretto_decode_ifma(other, valid_too, encoded, count);
        require_equal(valid, valid_too, count, "validity");
        florist_ristretto_encode_ifma(again_too, other, count);
        require_equal(again, again_too, 32 * count, "encodings");
        free(valid_too), free(again_too);
    }
    if (count) {
        florist_ristretto_table(table, points);
        florist_ristretto_multiply_table(other, table, scalars, count);
        florist_ristretto_multiply(points, points, 1, scalars);
        florist_ristretto_encode(encoded, points, 1);
        florist_ristretto_encode(again, other, 1);
        require_equal(encoded, again, 32, "multiplication");
        if (florist_ifma_available()) {
            florist_ristretto_encode(encoded, other, count);
            florist_ristretto_multiply_table_ifma(other, table, scalars, count);
            florist_ristretto_encode(again, other, count);
            require_equal(encoded, again, 32 * count, "multiplication by vectors");
        }
    }
    florist_ristretto_add(other, points, other, count, 0);
    if (count)
        florist_ristretto_add(other, other, points, count, 1);
    florist_ristretto_multiply(other, other, count, factor);
    florist_ristretto_ordinates(ordinates, other, count);

    const size_t pairs = count / 2;
    florist_ristretto_accumulate(accumulated, sums, points, pairs, rows, pairs, coordinates, columns);
    for (size_t i = 0; i < pairs; i++)
        rows[i] = (int64_t)(draw() % pairs);
    for (size_t i = 0; i < pairs * columns; i++)
        coordinates[i] = (int32_t)(draw() % sums);
    if (florist_ifma_available() &&
        !florist_ristretto_accumulate_ifma(accumulated, sums, points, pairs, rows, pairs, coordinates,
                                           columns))
        abort();
    if (!florist_ristretto_accumulate(accumulated, sums, points, pairs, rows, pairs, coordinates, columns))
        abort();
    free(encoded), free(again), free(valid), free(wide), free(scalars), free(factor), free(points);
    free(base), free(other), free(ordinates), free(table), free(accumulated), free(values), free(rows);
    free(coordinates);
}

static void try_merkle(void)
{
    const size_t count = draw() % MOST;
    int64_t *offsets = filled((count + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++)
        offsets[i + 1] = offsets[i] + (int64_t)(draw() % 200);
    uint8_t *data = filled((size_t)offsets[count]), *salts = filled(SALT_BYTES * count);
    uint8_t *one = filled(SHA256_BYTES * count), *other = filled(SHA256_BYTES * count);
    uint8_t *pairs = filled(2 * SHA256_BYTES * count);

    florist_leaf_hashes(one, data, offsets, count, salts, florist_sha256_compress);
    if (florist_sha_ni_available()) {
        florist_leaf_hashes(other, data, offsets, count, salts, florist_sha256_compress_ni);
        require_equal(one, other, SHA256_BYTES * count, "leaves");
    }
    florist_node_hashes(one, pairs, count, florist_sha256_compress);
    if (florist_sha_ni_available()) {
        florist_node_hashes(other, pairs, count, florist_sha256_compress_ni);
        require_equal(one, other, SHA256_BYTES * count, "nodes");
    }
    free(offsets), free(data), free(salts), free(one), free(other), free(pairs);
}

static void try_transfers(void)
{
    if (!florist_aes_ni_available())
        return;
    const size_t count = draw() % MOST, row_bytes = draw() % 100, blocks = draw() % 9;
    const size_t stride = 16 * blocks + draw() % 20, columns = 1 + draw() % BIT_COLUMNS;
    uint8_t *keys = filled(16 * count), *key = filled(16), *offset = filled(16);
    uint8_t *rows = filled(count * row_bytes), *one = filled(count * row_bytes);
    uint8_t *streams = filled(16 * count * blocks), *hashes = filled(16 * count);
    /* The last column may end with its last block. */
    uint8_t *matrix = filled((BIT_COLUMNS - 1) * stride + 16 * blocks);
    uint8_t *transposed = filled(128 * 16 * blocks), *sums = filled(16 * columns);

    florist_key_streams(streams, keys, count, blocks, draw());
    florist_tweaked_hashes(hashes, keys, count, key, offset, draw());
    florist_encrypt_rows(one, rows, count, row_bytes, key, keys);
    florist_encrypt_rows(one, one, count, row_bytes, key, keys);
    require_equal(one, rows, count * row_bytes, "pads applied twice");
    florist_transpose_bits(transposed, matrix, stride, blocks);
    florist_column_hashes(sums, matrix, columns, stride, blocks, key);
    free(keys), free(key), free(offset), free(rows), free(one), free(streams), free(hashes);
    free(matrix), free(transposed), free(sums);
}

static void try_embeddings(void)
{
    const size_t rows = draw() % MOST, columns = 1 + draw() % 6, width = 1 + draw() % 9;
    const size_t stride = columns * width + draw() % 3, cells = rows * columns;
    int64_t *starts = filled((columns + 1) * sizeof *starts);
    starts[0] = 0;
    for (size_t i = 0; i < columns; i++)
        starts[i + 1] = starts[i] + 1 + (int64_t)(draw() % 9);
    int64_t *categories = filled(cells * sizeof *categories);
    embedding_batch batch = {categories, starts, rows, columns, width};
    florist_within(&batch); /* any numbers */
    for (size_t i = 0; i < cells; i++) {
        const size_t column = i % columns;
        categories[i] = (int64_t)(draw() % (uint64_t)(starts[column + 1] - starts[column]));
    }
    if (!florist_within(&batch))
        abort();
    const size_t size = (size_t)starts[columns] * width;
    float *table = calloc(size, sizeof *table);
    /* The last row may end with its last embedding. */
    const size_t used = rows ? (rows - 1) * stride + columns * width : 0;
    float *values = calloc(used ? used : 1, sizeof *values);
    int64_t *found = filled(cells * sizeof *found);
    float *sums = filled(cells * width * sizeof *sums);
    if (!table || !values)
        abort();
    florist_gather(&batch, table, values, stride);
    florist_scatter_add(&batch, values, stride, table);
    if (florist_sum_rows(&batch, values, stride, found, sums) > (ptrdiff_t)cells)
        abort();
    free(starts), free(categories), free(table), free(values), free(found), free(sums);
}

int main(int count, char **arguments)
{
    const double seconds = count > 1 ? atof(arguments[1]) : 1;
    state = count > 2 ? strtoull(arguments[2], NULL, 10) | 1 : 1;
    const time_t end = time(NULL) + (time_t)(seconds + 0.5);
    unsigned long inputs = 0;
    do {
        try_groups();
        try_ristretto();
        try_merkle();
        try_transfers();
        try_embeddings();
        inputs++;
    } while (time(NULL) < end);
    printf("%lu inputs; vector kernels: IFMA %s, AVX2 %s\n", inputs,
           florist_ifma_available() ? "run" : "not supported by this CPU",
           florist_x25519_avx2_available() ? "run" : "not supported by this CPU");
    return 0;
}
