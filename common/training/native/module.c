/* florist.common.training._native: whole-array kernels. Nothing here touches a Python object while
 * the GIL is released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "embedding_rows.h"

/* The arguments of both functions: their buffers, and what follows from the sizes. */
typedef struct {
    Py_buffer table, categories, starts, rows;
    embedding_batch batch;
    size_t stride;
} arguments;

static int refuse(PyObject *kind, const char *why)
{
    PyErr_SetString(kind, why);
    return 0;
}

static int sizes_fit(arguments *given, Py_ssize_t width)
{
    embedding_batch *batch = &given->batch;
    const Py_ssize_t number = sizeof(float), index = sizeof(int64_t);
    if (width < 1 || given->starts.len < 2 * index || given->starts.len % index)
        return refuse(PyExc_ValueError, "there must be a column, and a width");
    const Py_ssize_t columns = given->starts.len / index - 1;
    const Py_ssize_t rows = given->categories.len / (columns * index);
    batch->categories = given->categories.buf;
    batch->starts = given->starts.buf;
    batch->rows = (size_t)rows;
    batch->columns = (size_t)columns;
    batch->width = (size_t)width;
    if (rows * columns * index != given->categories.len)
        return refuse(PyExc_ValueError, "categories: not a whole number of rows");
    for (Py_ssize_t column = 0; column < columns; column++)
        if (batch->starts[column + 1] < batch->starts[column])
            return refuse(PyExc_ValueError, "starts: must ascend");
    if (batch->starts[0] != 0 || given->table.len / (width * number) != batch->starts[columns] ||
        given->table.len % (width * number))
        return refuse(PyExc_ValueError, "table: starts are those of another");
    given->stride = rows ? (size_t)(given->rows.len / (rows * number)) : 0;
    if (rows && (given->rows.len % (rows * number) || given->stride < batch->columns * batch->width))
        return refuse(PyExc_ValueError, "rows: too short, or not a whole number of them");
    return florist_within(batch) ||
           refuse(PyExc_IndexError, "a category is out of its column's range");
}

static PyObject *run(PyObject *args, const char *format, void (*kernel)(const arguments *))
{
    arguments given;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, format, &given.table, &given.categories, &given.starts, &width,
                          &given.rows))
        return NULL;
    const int fits = sizes_fit(&given, width);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        kernel(&given);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&given.table);
    PyBuffer_Release(&given.categories);
    PyBuffer_Release(&given.starts);
    PyBuffer_Release(&given.rows);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static void run_gather(const arguments *given)
{
    florist_gather(&given->batch, given->table.buf, given->rows.buf, given->stride);
}

static void run_scatter_add(const arguments *given)
{
    florist_scatter_add(&given->batch, given->rows.buf, given->stride, given->table.buf);
}

static PyObject *gather(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "y*y*y*nw*", run_gather);
}

static PyObject *scatter_add(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "w*y*y*ny*", run_scatter_add);
}

static PyMethodDef methods[] = {
    {"gather", gather, METH_VARARGS, "gather(table, categories, starts, width, rows)"},
    {"scatter_add", scatter_add, METH_VARARGS, "scatter_add(table, categories, starts, width, rows)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&module);
}
