/* florist.common.groups._native: kernels on whole arrays. No Python object is used while the GIL is
 * released, and every size is checked before. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "curve_check.h"
#include "hash_to_curve.h"
#include "ifma.h"
#include "ristretto255.h"
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

/* --- ristretto255 --- */

#define POINT (POINT_WORDS * (Py_ssize_t)sizeof(uint64_t))
#define TABLE (TABLE_WORDS * (Py_ssize_t)sizeof(uint64_t))

/* Releases the buffers and returns None if `done`, else NULL with the error that is set. */
static PyObject *released(Py_buffer *buffers, int count, int done)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&buffers[i]);
    return done ? Py_NewRef(Py_None) : NULL;
}

typedef int decode_kernel(uint64_t *points, uint8_t *valid, const uint8_t *encoded, size_t count);

static PyObject *decode_with(PyObject *args, decode_kernel *kernel)
{
    Py_buffer b[3]; /* encoded, points, valid */
    if (!PyArg_ParseTuple(args, "y*w*w*", &b[0], &b[1], &b[2]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], ELEMENT, "encoded");
    int all = -1;
    if (count >= 0 && same_count(count, item_count(&b[1], POINT, "points"), "points") &&
        same_count(count, b[2].len, "valid")) {
        Py_BEGIN_ALLOW_THREADS
        all = kernel(b[1].buf, b[2].buf, b[0].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 3; i++)
        PyBuffer_Release(&b[i]);
    return all >= 0 ? PyBool_FromLong(all) : NULL;
}

static PyObject *ristretto_decode(PyObject *module, PyObject *args)
{
    (void)module;
    return decode_with(args, florist_ristretto_decode);
}

static PyObject *ristretto_decode_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? decode_with(args, florist_ristretto_decode_ifma) : NULL;
}

typedef void encode_kernel(uint8_t *encoded, const uint64_t *points, size_t count);

static PyObject *encode_with(PyObject *args, encode_kernel *kernel)
{
    Py_buffer b[2]; /* points, encoded */
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], POINT, "points");
    const int fit = count >= 0 && same_count(count, item_count(&b[1], ELEMENT, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        kernel(b[1].buf, b[0].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    return released(b, 2, fit);
}

static PyObject *ristretto_encode(PyObject *module, PyObject *args)
{
    (void)module;
    return encode_with(args, florist_ristretto_encode);
}

static PyObject *ristretto_encode_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? encode_with(args, florist_ristretto_encode_ifma) : NULL;
}

static PyObject *ristretto_add(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[3]; /* a, b, out */
    if (!PyArg_ParseTuple(args, "y*y*w*", &b[0], &b[1], &b[2]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], POINT, "a");
    const int same = b[1].len == POINT;
    const int fit = count >= 0 &&
                    (same || same_count(count, item_count(&b[1], POINT, "b"), "b")) &&
                    same_count(count, item_count(&b[2], POINT, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_ristretto_add(b[2].buf, b[0].buf, b[1].buf, (size_t)count, same);
        Py_END_ALLOW_THREADS
    }
    return released(b, 3, fit);
}

static PyObject *ristretto_multiply(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[3]; /* points, scalar, out */
    if (!PyArg_ParseTuple(args, "y*y*w*", &b[0], &b[1], &b[2]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], POINT, "points");
    const int fit = count >= 0 && same_count(SCALAR_BYTES, b[1].len, "scalar") &&
                    same_count(count, item_count(&b[2], POINT, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_ristretto_multiply(b[2].buf, b[0].buf, (size_t)count, b[1].buf);
        Py_END_ALLOW_THREADS
    }
    return released(b, 3, fit);
}

static PyObject *ristretto_table(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[2]; /* point, table */
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    const int fit = same_count(POINT, b[0].len, "point") && same_count(TABLE, b[1].len, "table");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_ristretto_table(b[1].buf, b[0].buf);
        Py_END_ALLOW_THREADS
    }
    return released(b, 2, fit);
}

typedef void multiply_table_kernel(uint64_t *out, const uint64_t *table, const uint8_t *scalars,
                                   size_t count);

static PyObject *multiply_table_with(PyObject *args, multiply_table_kernel *kernel)
{
    Py_buffer b[3]; /* table, scalars, out */
    if (!PyArg_ParseTuple(args, "y*y*w*", &b[0], &b[1], &b[2]))
        return NULL;
    const Py_ssize_t count = item_count(&b[1], SCALAR_BYTES, "scalars");
    const int fit = count >= 0 && same_count(TABLE, b[0].len, "table") &&
                    same_count(count, item_count(&b[2], POINT, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        kernel(b[2].buf, b[0].buf, b[1].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    return released(b, 3, fit);
}

static PyObject *ristretto_multiply_table(PyObject *module, PyObject *args)
{
    (void)module;
    return multiply_table_with(args, florist_ristretto_multiply_table);
}

static PyObject *ristretto_multiply_table_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? multiply_table_with(args, florist_ristretto_multiply_table_ifma) : NULL;
}

static PyObject *ristretto_ordinates(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[2]; /* points, out */
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], POINT, "points");
    const int fit =
        count >= 0 && same_count(count, item_count(&b[1], sizeof(uint64_t), "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_ristretto_ordinates(b[1].buf, b[0].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    return released(b, 2, fit);
}

typedef int accumulate_kernel(uint64_t *sums, size_t sum_count, const uint64_t *pairs,
                              size_t pair_count, const int64_t *rows, size_t count,
                              const int32_t *coordinates, size_t columns);

static PyObject *accumulate_with(PyObject *args, accumulate_kernel *kernel)
{
    Py_buffer b[4]; /* pairs, rows, coordinates, sums */
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &b[0], &b[1], &b[2], &b[3]))
        return NULL;
    int fit = 0;
    const Py_ssize_t pairs = item_count(&b[0], 2 * POINT, "pairs");
    const Py_ssize_t rows = pairs < 0 ? -1 : item_count(&b[1], sizeof(int64_t), "rows");
    const Py_ssize_t cells = rows < 0 ? -1 : item_count(&b[2], sizeof(int32_t), "coordinates");
    const Py_ssize_t sums = cells < 0 ? -1 : item_count(&b[3], 2 * POINT, "sums");
    if (sums < 0)
        ;
    else if (rows ? cells % rows : cells)
        PyErr_Format(PyExc_ValueError, "coordinates: %zd items for %zd rows", cells, rows);
    else {
        Py_BEGIN_ALLOW_THREADS
        fit = kernel(b[3].buf, (size_t)sums, b[0].buf, (size_t)pairs, b[1].buf,
                                           (size_t)rows, b[2].buf, rows ? (size_t)(cells / rows) : 0);
        Py_END_ALLOW_THREADS
        if (!fit)
            PyErr_SetString(PyExc_ValueError, "rows or coordinates: out of range");
    }
    return released(b, 4, fit);
}

static PyObject *ristretto_accumulate(PyObject *module, PyObject *args)
{
    (void)module;
    return accumulate_with(args, florist_ristretto_accumulate);
}

static PyObject *ristretto_accumulate_ifma(PyObject *module, PyObject *args)
{
    (void)module;
    return can_run(florist_ifma_available()) ? accumulate_with(args, florist_ristretto_accumulate_ifma) : NULL;
}

static PyObject *scalars_reduce(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[2]; /* wide, out */
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], WIDE_BYTES, "wide");
    const int fit = count >= 0 && same_count(count, item_count(&b[1], SCALAR_BYTES, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_scalars_reduce(b[1].buf, b[0].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    return released(b, 2, fit);
}

static PyObject *scalars_multiply_add(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer b[4]; /* scalars, factor, values, out */
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &b[0], &b[1], &b[2], &b[3]))
        return NULL;
    const Py_ssize_t count = item_count(&b[0], SCALAR_BYTES, "scalars");
    const int fit = count >= 0 && same_count(SCALAR_BYTES, b[1].len, "factor") &&
                    same_count(count, item_count(&b[2], sizeof(int64_t), "values"), "values") &&
                    same_count(count, item_count(&b[3], SCALAR_BYTES, "out"), "out");
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        florist_scalars_multiply_add(b[3].buf, b[0].buf, b[1].buf, b[2].buf, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    return released(b, 4, fit);
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
    {"ristretto_decode", ristretto_decode, METH_VARARGS, NULL},
    {"ristretto_decode_ifma", ristretto_decode_ifma, METH_VARARGS, NULL},
    {"ristretto_encode", ristretto_encode, METH_VARARGS, NULL},
    {"ristretto_encode_ifma", ristretto_encode_ifma, METH_VARARGS, NULL},
    {"ristretto_add", ristretto_add, METH_VARARGS, NULL},
    {"ristretto_multiply", ristretto_multiply, METH_VARARGS, NULL},
    {"ristretto_table", ristretto_table, METH_VARARGS, NULL},
    {"ristretto_multiply_table", ristretto_multiply_table, METH_VARARGS, NULL},
    {"ristretto_multiply_table_ifma", ristretto_multiply_table_ifma, METH_VARARGS, NULL},
    {"ristretto_ordinates", ristretto_ordinates, METH_VARARGS, NULL},
    {"ristretto_accumulate", ristretto_accumulate, METH_VARARGS, NULL},
    {"ristretto_accumulate_ifma", ristretto_accumulate_ifma, METH_VARARGS, NULL},
    {"scalars_reduce", scalars_reduce, METH_VARARGS, NULL},
    {"scalars_multiply_add", scalars_multiply_add, METH_VARARGS, NULL},
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
