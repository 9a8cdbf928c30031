/* florist.common.groups._native: kernels on whole arrays. No Python object is used while the GIL is
 * released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "curve_check.h"
#include "hash_to_curve.h"
#include "ifma.h"
#include "x25519_avx2.h"
#include "x25519_ifma.h"

#define ELEMENT 32

/* The number of items of `item` bytes in `buffer`; -1 with a ValueError if there is a remainder. */
static Py_ssize_t item_count(const Py_buffer *buffer, Py_ssize_t item, const char *name)
{
    if (buffer->len % item == 0)
        return buffer->len / item;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes are not a multiple of %zd", name, buffer->len, item);
    return -1;
}

static int same_count(Py_ssize_t wanted, Py_ssize_t got, const char *name)
{
    if (got >= 0 && got != wanted)
        PyErr_Format(PyExc_ValueError, "%s: %zd items, not %zd", name, got, wanted);
    return got == wanted;
}

/* --- scalar multiplication --- */

typedef void multiply_kernel(uint8_t *out, const uint8_t *points, size_t count,
                             const uint8_t scalar[ELEMENT]);

static int can_run(int available)
{
    if (!available)
        PyErr_SetString(PyExc_RuntimeError, "this build or this CPU cannot run that kernel");
    return available;
}

static PyObject *multiply(PyObject *args, multiply_kernel *kernel, int available)
{
    Py_buffer points, scalar, out;
    if (!can_run(available) || !PyArg_ParseTuple(args, "y*y*w*", &points, &scalar, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&points, ELEMENT, "points");
    if (count >= 0 && same_count(count, item_count(&out, ELEMENT, "out"), "out") &&
        same_count(ELEMENT, scalar.len, "scalar")) {
        Py_BEGIN_ALLOW_THREADS
        kernel(out.buf, points.buf, (size_t)count, scalar.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&points);
    PyBuffer_Release(&scalar);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *ifma_available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_ifma_available());
}

static PyObject *x25519_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return multiply(args, florist_x25519_ifma, florist_ifma_available());
}

static PyObject *avx2_available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_x25519_avx2_available());
}

static PyObject *x25519_avx2(PyObject *module, PyObject *args)
{
    (void)module;
    return multiply(args, florist_x25519_avx2, florist_x25519_avx2_available());
}

/* --- hash to curve, and the check of received points --- */

/* Offsets never decrease and stay within the data, so that no message is read beyond it. */
static int offsets_fit(const int64_t *offsets, Py_ssize_t count, Py_ssize_t data_bytes)
{
    int fit = offsets[0] >= 0 && offsets[count] <= data_bytes;
    for (Py_ssize_t i = 0; fit && i < count; i++)
        fit = offsets[i] <= offsets[i + 1];
    return fit;
}

typedef void expand_kernel(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                           const uint8_t *dst, size_t dst_bytes);

static PyObject *expand(PyObject *args, expand_kernel *kernel)
{
    Py_buffer data, offsets, dst, out;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &data, &offsets, &dst, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&offsets, sizeof(int64_t), "offsets") - 1;
    if (PyErr_Occurred())
        ;
    else if (count < 0 || !offsets_fit(offsets.buf, count, data.len))
        PyErr_SetString(PyExc_ValueError, "offsets: not ascending within the data");
    else if (dst.len > 255)
        PyErr_SetString(PyExc_ValueError, "dst: more than 255 bytes");
    else if (same_count(count, item_count(&out, UNIFORM_BYTES, "out"), "out")) {
        Py_BEGIN_ALLOW_THREADS
        kernel(out.buf, data.buf, offsets.buf, (size_t)count, dst.buf, (size_t)dst.len);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&dst);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *expand_messages(PyObject *module, PyObject *args)
{
    (void)module;
    return expand(args, florist_expand_messages);
}

static PyObject *expand_messages_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? expand(args, florist_expand_messages_ifma) : NULL;
}

typedef void map_kernel(uint8_t *out, const uint8_t *uniform, size_t count);

static PyObject *map(PyObject *args, map_kernel *kernel)
{
    Py_buffer uniform, out;
    if (!PyArg_ParseTuple(args, "y*w*", &uniform, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&uniform, UNIFORM_BYTES, "uniform");
    if (count >= 0 && same_count(count, item_count(&out, ELEMENT, "out"), "out")) {
        Py_BEGIN_ALLOW_THREADS
        kernel(out.buf, uniform.buf, (size_t)count);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&uniform);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *elligator2_map(PyObject *module, PyObject *args)
{
    (void)module;
    return map(args, florist_elligator2);
}

static PyObject *elligator2_map_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? map(args, florist_elligator2_ifma) : NULL;
}

typedef int check_kernel(const uint8_t *points, size_t count, const uint8_t *random);

/* `share`: the number of points that share CHECK_ROUNDS random bytes. */
static PyObject *check(PyObject *args, check_kernel *kernel, Py_ssize_t share)
{
    Py_buffer points, random;
    if (!PyArg_ParseTuple(args, "y*y*", &points, &random))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&points, ELEMENT, "points");
    if (count >= 0 && same_count((count + share - 1) / share,
                                 item_count(&random, CHECK_ROUNDS, "random"), "random")) {
        int good;
        Py_BEGIN_ALLOW_THREADS
        good = kernel(points.buf, (size_t)count, random.buf);
        Py_END_ALLOW_THREADS
        result = good < 0 ? PyErr_NoMemory() : PyBool_FromLong(good);
    }
    PyBuffer_Release(&points);
    PyBuffer_Release(&random);
    return result;
}

static PyObject *on_curve_batch(PyObject *module, PyObject *args)
{
    (void)module;
    return check(args, florist_all_on_curve, 1);
}

static PyObject *on_curve_batch_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available())
               ? check(args, florist_all_on_curve_ifma, CHECK_SHARED_BY)
               : NULL;
}

static PyMethodDef functions[] = {
    {"ifma_available", ifma_available, METH_NOARGS, NULL},
    {"x25519_ifma", x25519_ifma, METH_VARARGS, NULL},
    {"avx2_available", avx2_available, METH_NOARGS, NULL},
    {"x25519_avx2", x25519_avx2, METH_VARARGS, NULL},
    {"expand_messages", expand_messages, METH_VARARGS, NULL},
    {"expand_messages_ifma", expand_messages_ifma, METH_VARARGS, NULL},
    {"elligator2_map", elligator2_map, METH_VARARGS, NULL},
    {"elligator2_map_ifma", elligator2_map_ifma, METH_VARARGS, NULL},
    {"on_curve_batch", on_curve_batch, METH_VARARGS, NULL},
    {"on_curve_batch_ifma", on_curve_batch_ifma, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "florist.common.groups._native",
    .m_doc = "Whole-array kernels of the groups, with the GIL released.",
    .m_size = 0,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
