/* Embeddings of many categorical columns, which lie in one table, column after column. */
#ifndef FLORIST_EMBEDDING_ROWS_H
#define FLORIST_EMBEDDING_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Category k of column c has row starts[c] + k of the table, below starts[c + 1]. */
typedef struct {
    const int64_t *categories; /* rows x columns */
    const int64_t *starts;     /* columns + 1 */
    size_t rows, columns;
    size_t width; /* numbers of an embedding */
} embedding_batch;

/* Whether each category is within its column. */
int florist_within(const embedding_batch *batch);

/* out, of `stride` >= columns * width numbers a row, gets the embeddings of each row side by side;
 * the rest of its rows is left as it is. */
void florist_gather(const embedding_batch *batch, const float *table, float *out, size_t stride);

/* The reverse: what lies in `in` is added to the table's rows, in the order of `in`. */
void florist_scatter_add(const embedding_batch *batch, const float *in, size_t stride, float *table);

/* The same for a table that is not there: `found` gets the rows that have a sum, each once, in the
 * order in which they come first, and `sums` their sums. Both have room for one per category. Their
 * number, or -1 if there is no memory. */
ptrdiff_t florist_sum_rows(const embedding_batch *batch, const float *in, size_t stride,
                           int64_t *found, float *sums);

#endif
