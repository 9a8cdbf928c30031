/* Embeddings of many categorical columns, stored in one table, column after column. */
#ifndef FLORIST_EMBEDDING_ROWS_H
#define FLORIST_EMBEDDING_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Category k of column c is row starts[c] + k of the table, below starts[c + 1]. */
typedef struct {
    const int64_t *categories; /* rows x columns */
    const int64_t *starts;     /* columns + 1 */
    size_t rows, columns;
    size_t width; /* numbers per embedding */
} embedding_batch;

/* Whether each category is in the range of its column. */
int florist_within(const embedding_batch *batch);

/* Writes the embeddings of each row, concatenated, to a row of `out`, which has `stride` >=
 * columns * width numbers; the remaining numbers of the row are not changed. */
void florist_gather(const embedding_batch *batch, const float *table, float *out, size_t stride);

/* The reverse: adds the embeddings in `in` to the rows of the table, in the order of `in`. */
void florist_scatter_add(const embedding_batch *batch, const float *in, size_t stride, float *table);

/* The same without a table: writes the rows that have a sum to `found`, each once, in the order of
 * their first occurrence, and their sums to `sums`. Both have space for one per category. Returns
 * their number, or -1 if memory is exhausted. */
ptrdiff_t florist_sum_rows(const embedding_batch *batch, const float *in, size_t stride,
                           int64_t *found, float *sums);

#endif
