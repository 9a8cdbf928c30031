#include "embedding_rows.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

int florist_within(const embedding_batch *batch)
{
    /* As unsigned numbers, negative ones are too large. No early end: so it is vectorised. */
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

/* With a width that the compiler knows, an embedding is a load and a store or two. */
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
