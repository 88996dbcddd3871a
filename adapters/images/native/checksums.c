/* CRCs of parts of memory. */
#include "functions.h"

#include "crcs.h"

/* Below it, the GIL is kept: who gives it away may wait long to have it back. */
enum { MUCH_BYTES = 1 << 16 };

PyObject *kernel_crcs(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer data, from, to;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*:crcs", &data, &from, &to)) return NULL;
    Py_ssize_t item = (Py_ssize_t)sizeof(int64_t), count = from.len / item;
    const int64_t *begins = from.buf, *ends = to.buf;
    int64_t bytes = 0;
    int fits = from.len % item == 0 && to.len == from.len &&
               (uintptr_t)begins % (uintptr_t)item == 0 && (uintptr_t)ends % (uintptr_t)item == 0;
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        fits = begins[i] >= 0 && begins[i] <= ends[i] && ends[i] <= data.len;
        bytes += bytes < MUCH_BYTES ? ends[i] - begins[i] : 0;
    }
    if (fits)
        result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    else
        PyErr_SetString(PyExc_ValueError, "begins and ends must be int64, of parts of data");
    if (result != NULL) {
        uint32_t *out = (uint32_t *)(void *)PyBytes_AsString(result);
        PyThreadState *released = bytes >= MUCH_BYTES ? PyEval_SaveThread() : NULL;
        for (Py_ssize_t i = 0; i < count; i++)
            out[i] = crc32c((const uint8_t *)data.buf + begins[i], (size_t)(ends[i] - begins[i]));
        if (released) PyEval_RestoreThread(released);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return result;
}
