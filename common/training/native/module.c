/* florist.common.training._native: kernels on whole arrays. No Python object is used while the GIL is
 * released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "embedding_rows.h"

#define NUMBER ((Py_ssize_t)sizeof(float))
#define INDEX ((Py_ssize_t)sizeof(int64_t))

static int refuse(PyObject *kind, const char *why)
{
    PyErr_SetString(kind, why);
    return 0;
}

/* Makes a batch of categories, starts and width; 0 with an error if they are inconsistent. */
static int make_batch(embedding_batch *batch, const Py_buffer *categories, const Py_buffer *starts,
                      Py_ssize_t width)
{
    if (width < 1 || starts->len < 2 * INDEX || starts->len % INDEX)
        return refuse(PyExc_ValueError, "there must be a column, and a width");
    const Py_ssize_t columns = starts->len / INDEX - 1;
    if (categories->len % (columns * INDEX))
        return refuse(PyExc_ValueError, "categories: not a whole number of rows");
    batch->categories = categories->buf;
    batch->starts = starts->buf;
    batch->rows = (size_t)(categories->len / (columns * INDEX));
    batch->columns = (size_t)columns;
    batch->width = (size_t)width;
    for (Py_ssize_t column = 0; column < columns; column++)
        if (batch->starts[column + 1] < batch->starts[column])
            return refuse(PyExc_ValueError, "starts: must ascend");
    if (batch->starts[0] != 0)
        return refuse(PyExc_ValueError, "starts: must begin with 0");
    return florist_within(batch) ||
           refuse(PyExc_IndexError, "a category is out of its column's range");
}

static int is_table_of(const embedding_batch *batch, const Py_buffer *table)
{
    const Py_ssize_t row = (Py_ssize_t)batch->width * NUMBER;
    return (table->len % row == 0 && table->len / row == batch->starts[batch->columns]) ||
           refuse(PyExc_ValueError, "table: starts are those of another");
}

/* The numbers per row of `rows`; -1 with an error if they do not match the batch. */
static Py_ssize_t stride_of(const embedding_batch *batch, const Py_buffer *rows)
{
    const Py_ssize_t all = (Py_ssize_t)batch->rows * NUMBER;
    if (!all)
        return 0;
    if (rows->len % all == 0 && (size_t)(rows->len / all) >= batch->columns * batch->width)
        return rows->len / all;
    refuse(PyExc_ValueError, "rows: too short, or not a whole number of them");
    return -1;
}

static PyObject *gather(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer table, categories, starts, rows;
    Py_ssize_t width, stride;
    if (!PyArg_ParseTuple(args, "y*y*y*nw*", &table, &categories, &starts, &width, &rows))
        return NULL;
    PyObject *result = NULL;
    embedding_batch batch;
    if (make_batch(&batch, &categories, &starts, width) && is_table_of(&batch, &table) &&
        (stride = stride_of(&batch, &rows)) >= 0) {
        Py_BEGIN_ALLOW_THREADS
        florist_gather(&batch, table.buf, rows.buf, (size_t)stride);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&table);
    PyBuffer_Release(&categories);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&rows);
    return result;
}

static PyObject *scatter_add(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer table, categories, starts, rows;
    Py_ssize_t width, stride;
    if (!PyArg_ParseTuple(args, "w*y*y*ny*", &table, &categories, &starts, &width, &rows))
        return NULL;
    PyObject *result = NULL;
    embedding_batch batch;
    if (make_batch(&batch, &categories, &starts, width) && is_table_of(&batch, &table) &&
        (stride = stride_of(&batch, &rows)) >= 0) {
        Py_BEGIN_ALLOW_THREADS
        florist_scatter_add(&batch, rows.buf, (size_t)stride, table.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&table);
    PyBuffer_Release(&categories);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&rows);
    return result;
}

static PyObject *sum_rows(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer categories, starts, rows, found, sums;
    Py_ssize_t width, stride;
    if (!PyArg_ParseTuple(args, "y*y*ny*w*w*", &categories, &starts, &width, &rows, &found, &sums))
        return NULL;
    PyObject *result = NULL;
    embedding_batch batch;
    if (make_batch(&batch, &categories, &starts, width) &&
        (stride = stride_of(&batch, &rows)) >= 0) {
        const Py_ssize_t most = categories.len / INDEX;
        if (found.len / INDEX < most || sums.len / (width * NUMBER) < most)
            refuse(PyExc_ValueError, "found, sums: too short");
        else {
            ptrdiff_t count;
            Py_BEGIN_ALLOW_THREADS
            count = florist_sum_rows(&batch, rows.buf, (size_t)stride, found.buf, sums.buf);
            Py_END_ALLOW_THREADS
            result = count < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(count);
        }
    }
    PyBuffer_Release(&categories);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&found);
    PyBuffer_Release(&sums);
    return result;
}

static PyMethodDef methods[] = {
    {"gather", gather, METH_VARARGS, "gather(table, categories, starts, width, rows)"},
    {"scatter_add", scatter_add, METH_VARARGS, "scatter_add(table, categories, starts, width, rows)"},
    {"sum_rows", sum_rows, METH_VARARGS,
     "sum_rows(categories, starts, width, rows, found, sums) -> how many were found"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&module);
}
