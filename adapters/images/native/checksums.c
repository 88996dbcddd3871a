/* CRCs of parts of memory. */
#include "functions.h"

#include "crcs.h"

/* Below it, the GIL is kept: who gives it away may wait long to have it back. */
enum { MUCH_BYTES = 1 << 16 };

static void fill(const uint8_t *data, const int64_t *begins, const int64_t *ends, Py_ssize_t count,
                 uint32_t *out) {
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = crc32c(data + begins[i], (size_t)(ends[i] - begins[i]));
}

PyObject *kernel_crcs(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *given[3], *result = NULL;
    if (!PyArg_ParseTuple(arguments, "OOO:crcs", &given[0], &given[1], &given[2])) return NULL;
    Py_buffer views[3];
    int opened = 0;
    while (opened < 3) {
        if (PyObject_GetBuffer(given[opened], &views[opened], PyBUF_C_CONTIGUOUS) < 0) goto end;
        opened++;
    }
    Py_ssize_t item = (Py_ssize_t)sizeof(int64_t), count = views[1].len / item;
    const int64_t *begins = views[1].buf, *ends = views[2].buf;
    int64_t bytes = 0;
    int fits = views[1].len % item == 0 && views[2].len == views[1].len &&
               (uintptr_t)begins % (uintptr_t)item == 0 && (uintptr_t)ends % (uintptr_t)item == 0;
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        fits = begins[i] >= 0 && begins[i] <= ends[i] && ends[i] <= views[0].len;
        bytes += bytes < MUCH_BYTES ? ends[i] - begins[i] : 0;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "begins and ends must be int64, of parts of data");
        goto end;
    }
    result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    if (result == NULL) goto end;
    uint32_t *out = (uint32_t *)(void *)PyBytes_AsString(result);
    if (bytes >= MUCH_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        fill(views[0].buf, begins, ends, count, out);
        Py_END_ALLOW_THREADS
    } else
        fill(views[0].buf, begins, ends, count, out);
end:
    while (opened > 0) PyBuffer_Release(&views[--opened]);
    return result;
}
