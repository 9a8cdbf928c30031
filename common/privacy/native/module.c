/* florist.common.privacy._native: kernels on whole arrays. No Python object is used while the GIL is
 * released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "merkle.h"

/* The compressor to use; NULL with an error if this CPU cannot run it. */
static sha256_compressor *chosen(int accelerated)
{
    if (!accelerated)
        return florist_sha256_compress;
    if (florist_sha_ni_available())
        return florist_sha256_compress_ni;
    PyErr_SetString(PyExc_RuntimeError, "this build or this CPU cannot run that kernel");
    return NULL;
}

/* Whether `buffer` has `count` items of `item` bytes; else a ValueError is set. */
static int has_items(const Py_buffer *buffer, Py_ssize_t count, Py_ssize_t item, const char *name)
{
    if (buffer->len % item == 0 && buffer->len / item == count)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not %zd items of %zd", name, buffer->len, count,
                 item);
    return 0;
}

/* Offsets never decrease and stay within the data, so that no ID is read beyond it. */
static int offsets_fit(const int64_t *offsets, Py_ssize_t count, Py_ssize_t data_bytes)
{
    int fit = offsets[0] >= 0 && offsets[count] <= data_bytes;
    for (Py_ssize_t i = 0; fit && i < count; i++)
        fit = offsets[i] <= offsets[i + 1];
    return fit;
}

static PyObject *sha_ni_available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_sha_ni_available());
}

static PyObject *sha256_digest(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer message, out;
    int accelerated;
    if (!PyArg_ParseTuple(args, "y*w*p", &message, &out, &accelerated))
        return NULL;
    PyObject *result = NULL;
    sha256_compressor *compress = chosen(accelerated);
    if (compress && has_items(&out, 1, SHA256_BYTES, "out")) {
        sha256 hash;
        Py_BEGIN_ALLOW_THREADS
        sha256_start(&hash, compress);
        sha256_update(&hash, message.buf, (size_t)message.len);
        sha256_finish(&hash, out.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&message);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *leaf_hashes(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data, offsets, salts, out;
    int accelerated;
    if (!PyArg_ParseTuple(args, "y*y*y*w*p", &data, &offsets, &salts, &out, &accelerated))
        return NULL;
    PyObject *result = NULL;
    sha256_compressor *compress = chosen(accelerated);
    const Py_ssize_t count = offsets.len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (!compress)
        ;
    else if (count < 0 || offsets.len % (Py_ssize_t)sizeof(int64_t) ||
             !offsets_fit(offsets.buf, count, data.len))
        PyErr_SetString(PyExc_ValueError, "offsets: not ascending within the data");
    else if (has_items(&salts, count, SALT_BYTES, "salts") &&
             has_items(&out, count, SHA256_BYTES, "out")) {
        Py_BEGIN_ALLOW_THREADS
        florist_leaf_hashes(out.buf, data.buf, offsets.buf, (size_t)count, salts.buf, compress);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&salts);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *node_hashes(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer children, out;
    int accelerated;
    if (!PyArg_ParseTuple(args, "y*w*p", &children, &out, &accelerated))
        return NULL;
    PyObject *result = NULL;
    sha256_compressor *compress = chosen(accelerated);
    const Py_ssize_t count = children.len / (2 * SHA256_BYTES);
    if (compress && has_items(&children, count, 2 * SHA256_BYTES, "children") &&
        has_items(&out, count, SHA256_BYTES, "out")) {
        Py_BEGIN_ALLOW_THREADS
        florist_node_hashes(out.buf, children.buf, (size_t)count, compress);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&children);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef functions[] = {
    {"sha_ni_available", sha_ni_available, METH_NOARGS, NULL},
    {"sha256", sha256_digest, METH_VARARGS, "sha256(message, out, accelerated)"},
    {"leaf_hashes", leaf_hashes, METH_VARARGS, "leaf_hashes(data, offsets, salts, out, accelerated)"},
    {"node_hashes", node_hashes, METH_VARARGS, "node_hashes(children, out, accelerated)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "florist.common.privacy._native",
    .m_doc = "Whole-array kernels of the set commitment, with the GIL released.",
    .m_size = 0,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
