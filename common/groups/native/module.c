/* florist.common.groups._native: whole-array kernels. Nothing here touches a Python object while
 * the GIL is released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "curve_check.h"
#include "hash_to_curve.h"
#include "x25519_avx2.h"
#include "x25519_multibuffer.h"

#define ELEMENT 32

/* How many whole items of `item` bytes `buffer` has; -1 and ValueError if there is a remainder. */
static Py_ssize_t item_count(const Py_buffer *buffer, Py_ssize_t item, const char *name)
{
    if (buffer->len % item == 0)
        return buffer->len / item;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes are no multiple of %zd", name, buffer->len, item);
    return -1;
}

static int same_count(Py_ssize_t wanted, Py_ssize_t got, const char *name)
{
    if (got >= 0 && got != wanted)
        PyErr_Format(PyExc_ValueError, "%s: %zd items, not %zd", name, got, wanted);
    return got == wanted;
}

/* --- scalar multiplication --- */

/* 0, or -1 if it cannot do it. */
typedef int multiply_kernel(uint8_t *out, const uint8_t *points, size_t count,
                            const uint8_t scalar[ELEMENT]);

static PyObject *multiply(PyObject *args, multiply_kernel *kernel, int available)
{
    Py_buffer points, scalar, out;
    if (!available) {
        PyErr_SetString(PyExc_RuntimeError, "this build or this CPU cannot run that kernel");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "y*y*w*", &points, &scalar, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&points, ELEMENT, "points");
    if (count >= 0 && same_count(count, item_count(&out, ELEMENT, "out"), "out") &&
        same_count(ELEMENT, scalar.len, "scalar")) {
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = kernel(out.buf, points.buf, (size_t)count, scalar.buf);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_SetString(PyExc_RuntimeError, "the kernel reports an error");
        else
            result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&points);
    PyBuffer_Release(&scalar);
    PyBuffer_Release(&out);
    return result;
}

static int multiply_avx2(uint8_t *out, const uint8_t *points, size_t count,
                         const uint8_t scalar[ELEMENT])
{
    florist_x25519_avx2(out, points, count, scalar);
    return 0;
}

static PyObject *multibuffer_built(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_x25519_multibuffer_built());
}

static PyObject *multibuffer_available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_x25519_multibuffer_available());
}

static PyObject *x25519_multibuffer(PyObject *module, PyObject *args)
{
    (void)module;
    return multiply(args, florist_x25519_multibuffer, florist_x25519_multibuffer_available());
}

static PyObject *avx2_available(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(florist_x25519_avx2_available());
}

static PyObject *x25519_avx2(PyObject *module, PyObject *args)
{
    (void)module;
    return multiply(args, multiply_avx2, florist_x25519_avx2_available());
}

/* --- hash to curve, and the check of received points --- */

/* Offsets never fall and stay within the data, so that no message reads outside it. */
static int offsets_fit(const int64_t *offsets, Py_ssize_t count, Py_ssize_t data_bytes)
{
    int fit = offsets[0] >= 0 && offsets[count] <= data_bytes;
    for (Py_ssize_t i = 0; fit && i < count; i++)
        fit = offsets[i] <= offsets[i + 1];
    return fit;
}

static PyObject *expand_messages(PyObject *module, PyObject *args)
{
    (void)module;
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
        florist_expand_messages(out.buf, data.buf, offsets.buf, (size_t)count, dst.buf,
                                (size_t)dst.len);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&dst);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *elligator2_map(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer uniform, out;
    if (!PyArg_ParseTuple(args, "y*w*", &uniform, &out))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&uniform, UNIFORM_BYTES, "uniform");
    if (count >= 0 && same_count(count, item_count(&out, ELEMENT, "out"), "out")) {
        Py_BEGIN_ALLOW_THREADS
        florist_elligator2(out.buf, uniform.buf, (size_t)count);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&uniform);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *on_curve_batch(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer points, random;
    if (!PyArg_ParseTuple(args, "y*y*", &points, &random))
        return NULL;
    PyObject *result = NULL;
    const Py_ssize_t count = item_count(&points, ELEMENT, "points");
    if (count >= 0 && same_count(count, item_count(&random, CHECK_ROUNDS, "random"), "random")) {
        int good;
        Py_BEGIN_ALLOW_THREADS
        good = florist_all_on_curve(points.buf, (size_t)count, random.buf);
        Py_END_ALLOW_THREADS
        result = good < 0 ? PyErr_NoMemory() : PyBool_FromLong(good);
    }
    PyBuffer_Release(&points);
    PyBuffer_Release(&random);
    return result;
}

static PyMethodDef functions[] = {
    {"multibuffer_built", multibuffer_built, METH_NOARGS, NULL},
    {"multibuffer_available", multibuffer_available, METH_NOARGS, NULL},
    {"x25519_multibuffer", x25519_multibuffer, METH_VARARGS, NULL},
    {"avx2_available", avx2_available, METH_NOARGS, NULL},
    {"x25519_avx2", x25519_avx2, METH_VARARGS, NULL},
    {"expand_messages", expand_messages, METH_VARARGS, NULL},
    {"elligator2_map", elligator2_map, METH_VARARGS, NULL},
    {"on_curve_batch", on_curve_batch, METH_VARARGS, NULL},
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
