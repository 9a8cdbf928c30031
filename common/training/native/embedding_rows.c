#include "embedding_rows.h"

#include <stdlib.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

int florist_within(const embedding_batch *batch)
{
    /* As unsigned numbers, negative ones are too large. No early exit, so that it is vectorised. */
    uint64_t outside = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        const int64_t *categories = batch->categories + row * batch->columns;
        for (size_t column = 0; column < batch->columns; column++) {
            const uint64_t size = (uint64_t)(batch->starts[column + 1] - batch->starts[column]);
            outside |= (uint64_t)categories[column] >= size;
        }
    }
    return !outside;
}

ALWAYS_INLINE void gather(const embedding_batch *batch, const float *table, float *out,
                          size_t stride, size_t width)
{
    for (size_t row = 0; row < batch->rows; row++) {
        const int64_t *categories = batch->categories + row * batch->columns;
        float *to = out + row * stride;
        for (size_t column = 0; column < batch->columns; column++, to += width)
            memcpy(to, table + (size_t)(batch->starts[column] + categories[column]) * width,
                   width * sizeof(float));
    }
}

ALWAYS_INLINE void scatter_add(const embedding_batch *batch, const float *in, size_t stride,
                               float *table, size_t width)
{
    for (size_t row = 0; row < batch->rows; row++) {
        const int64_t *categories = batch->categories + row * batch->columns;
        const float *from = in + row * stride;
        for (size_t column = 0; column < batch->columns; column++, from += width) {
            float *to = table + (size_t)(batch->starts[column] + categories[column]) * width;
            for (size_t place = 0; place < width; place++)
                to[place] += from[place];
        }
    }
}

/* With a constant width, copying an embedding is one or two loads and stores. */
void florist_gather(const embedding_batch *batch, const float *table, float *out, size_t stride)
{
    switch (batch->width) {
    case 4: gather(batch, table, out, stride, 4); break;
    case 8: gather(batch, table, out, stride, 8); break;
    case 16: gather(batch, table, out, stride, 16); break;
    default: gather(batch, table, out, stride, batch->width);
    }
}

void florist_scatter_add(const embedding_batch *batch, const float *in, size_t stride, float *table)
{
    switch (batch->width) {
    case 4: scatter_add(batch, in, stride, table, 4); break;
    case 8: scatter_add(batch, in, stride, table, 8); break;
    case 16: scatter_add(batch, in, stride, table, 16); break;
    default: scatter_add(batch, in, stride, table, batch->width);
    }
}

/* The index of each row in `found`, plus one: a hash table with open addressing, at most half full. */
typedef struct {
    uint32_t *places;
    uint64_t mask;
    int shift;
} row_index;

static int make_index(row_index *index, size_t most)
{
    int bits = 4;
    while (((size_t)1 << bits) < 2 * most)
        bits++;
    index->mask = ((uint64_t)1 << bits) - 1;
    index->shift = 64 - bits;
    index->places = most < UINT32_MAX ? calloc((size_t)1 << bits, sizeof(uint32_t)) : NULL;
    return index->places != NULL;
}

/* The index of `row`; a new row is appended to the `count` rows found so far. */
ALWAYS_INLINE size_t place_of(const row_index *index, int64_t row, int64_t *found, size_t count)
{
    /* Fibonacci hashing spreads adjacent rows. */
    uint64_t at = (uint64_t)row * UINT64_C(0x9E3779B97F4A7C15) >> index->shift;
    while (index->places[at] && found[index->places[at] - 1] != row)
        at = (at + 1) & index->mask;
    if (!index->places[at]) {
        found[count] = row;
        index->places[at] = (uint32_t)(count + 1);
    }
    return index->places[at] - 1;
}

ALWAYS_INLINE size_t sum_rows(const embedding_batch *batch, const float *in, size_t stride,
                              int64_t *found, float *sums, const row_index *index, size_t width)
{
    size_t count = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        const int64_t *categories = batch->categories + row * batch->columns;
        const float *from = in + row * stride;
        for (size_t column = 0; column < batch->columns; column++, from += width) {
            const int64_t sought = batch->starts[column] + categories[column];
            const size_t at = place_of(index, sought, found, count);
            float *to = sums + at * width;
            if (at == count) {
                memset(to, 0, width * sizeof(float));
                count++;
            }
            for (size_t place = 0; place < width; place++)
                to[place] += from[place];
        }
    }
    return count;
}

ptrdiff_t florist_sum_rows(const embedding_batch *batch, const float *in, size_t stride,
                           int64_t *found, float *sums)
{
    row_index index;
    size_t count;
    if (!make_index(&index, batch->rows * batch->columns))
        return -1;
    switch (batch->width) {
    case 4: count = sum_rows(batch, in, stride, found, sums, &index, 4); break;
    case 8: count = sum_rows(batch, in, stride, found, sums, &index, 8); break;
    case 16: count = sum_rows(batch, in, stride, found, sums, &index, 16); break;
    default: count = sum_rows(batch, in, stride, found, sums, &index, batch->width);
    }
    free(index.places);
    return (ptrdiff_t)count;
}
