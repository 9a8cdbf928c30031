/* florist.common.oblivious_transfer._native: kernels on whole arrays. No Python object is used while
 * the GIL is released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "aes_ni.h"
#include "aes_streams.h"
#include "bit_columns.h"

static int refuse(PyObject *kind, const char *why)
{
    PyErr_SetString(kind, why);
    return 0;
}

static int can_run(void)
{
    return florist_aes_ni_available() ||
           refuse(PyExc_RuntimeError, "this build or this CPU cannot run that kernel");
}

/* Whether `buffer` has `bytes` bytes; else a ValueError is set. */
static int has_bytes(const Py_buffer *buffer, Py_ssize_t bytes, const char *name)
{
    if (buffer->len == bytes)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not %zd", name, buffer->len, bytes);
    return 0;
}

/* Whether `buffer` consists of items of `item` bytes; else a ValueError is set. */
static int has_items(const Py_buffer *buffer, Py_ssize_t item, const char *name)
{
    if (item > 0 && buffer->len % item == 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not items of %zd", name, buffer->len, item);
    return 0;
}

/* Whether `buffer` consists of `count` items of the same size, a multiple of `unit` bytes; else a
 * ValueError is set. */
static int has_equal_items(const Py_buffer *buffer, Py_ssize_t count, Py_ssize_t unit,
                           const char *name)
{
    if (count == 0 ? buffer->len == 0 : buffer->len % count == 0 && buffer->len / count % unit == 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not %zd equal items", name, buffer->len, count);
    return 0;
}

static PyObject *available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_aes_ni_available());
}

static PyObject *key_streams(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer keys, out;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "y*Kw*", &keys, &number, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = keys.len / AES_BLOCK;
    if (can_run() && has_items(&keys, AES_BLOCK, "keys") &&
        has_equal_items(&out, count, AES_BLOCK, "out")) {
        const size_t blocks = count ? (size_t)(out.len / count / AES_BLOCK) : 0;
        Py_BEGIN_ALLOW_THREADS
        florist_key_streams(out.buf, keys.buf, (size_t)count, blocks, number);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&keys);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *tweaked_hashes(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer key, blocks, offset, out;
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "y*y*y*Kw*", &key, &blocks, &offset, &first, &out))
        return NULL;
    PyObject *result = NULL;
    if (can_run() && has_bytes(&key, AES_BLOCK, "key") && has_bytes(&offset, AES_BLOCK, "offset") &&
        has_items(&blocks, AES_BLOCK, "blocks") && has_bytes(&out, blocks.len, "out")) {
        Py_BEGIN_ALLOW_THREADS
        florist_tweaked_hashes(out.buf, blocks.buf, (size_t)blocks.len / AES_BLOCK, key.buf,
                               offset.buf, first);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&offset);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *encrypt_rows(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer key, keys, rows, out;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &key, &keys, &rows, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = keys.len / AES_BLOCK;
    if (can_run() && has_bytes(&key, AES_BLOCK, "key") && has_items(&keys, AES_BLOCK, "keys") &&
        has_equal_items(&rows, count, 1, "rows") && has_bytes(&out, rows.len, "out")) {
        const size_t row_bytes = count ? (size_t)(rows.len / count) : 0;
        Py_BEGIN_ALLOW_THREADS
        florist_encrypt_rows(out.buf, rows.buf, (size_t)count, row_bytes, key.buf, keys.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *transpose_bits(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer columns, out;
    if (!PyArg_ParseTuple(args, "y*w*", &columns, &out))
        return NULL;
    PyObject *result = NULL;
    /* A block is 128 rows of 16 bytes, or 16 bytes of each column. */
    if (can_run() && has_items(&columns, BIT_COLUMNS, "columns") &&
        has_items(&out, BIT_COLUMNS * AES_BLOCK, "out")) {
        const Py_ssize_t stride = columns.len / BIT_COLUMNS;
        const Py_ssize_t blocks = out.len / (BIT_COLUMNS * AES_BLOCK);
        if (blocks > stride / AES_BLOCK)
            refuse(PyExc_ValueError, "out: more rows than the columns have");
        else {
            Py_BEGIN_ALLOW_THREADS
            florist_transpose_bits(out.buf, columns.buf, (size_t)stride, (size_t)blocks);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        }
    }
    PyBuffer_Release(&columns);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *column_hashes(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer columns, point, out;
    Py_ssize_t blocks;
    if (!PyArg_ParseTuple(args, "y*ny*w*", &columns, &blocks, &point, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = out.len / AES_BLOCK;
    if (can_run() && has_bytes(&point, AES_BLOCK, "point") && has_items(&out, AES_BLOCK, "out") &&
        has_equal_items(&columns, count, 1, "columns")) {
        const Py_ssize_t stride = count ? columns.len / count : 0;
        if (blocks < 0 || (count && blocks > stride / AES_BLOCK))
            refuse(PyExc_ValueError, "blocks: more than a column has");
        else {
            Py_BEGIN_ALLOW_THREADS
            florist_column_hashes(out.buf, columns.buf, (size_t)count, (size_t)stride,
                                  (size_t)blocks, point.buf);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        }
    }
    PyBuffer_Release(&columns);
    PyBuffer_Release(&point);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef methods[] = {
    {"available", available, METH_NOARGS, "Whether this build and this CPU can run the kernels."},
    {"key_streams", key_streams, METH_VARARGS, "key_streams(keys, number, out)"},
    {"tweaked_hashes", tweaked_hashes, METH_VARARGS, "tweaked_hashes(key, blocks, offset, first, out)"},
    {"encrypt_rows", encrypt_rows, METH_VARARGS, "encrypt_rows(key, keys, rows, out)"},
    {"transpose_bits", transpose_bits, METH_VARARGS, "transpose_bits(columns, out)"},
    {"column_hashes", column_hashes, METH_VARARGS, "column_hashes(columns, blocks, point, out)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&module);
}
