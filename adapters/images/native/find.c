#include "find.h"

#include <stdlib.h>

#include "arguments.h"
#include "crcs.h"
#include "records.h"

/* Below it, the GIL is kept: who gives it away may wait long to have it back. */
enum { MUCH_BYTES = 1 << 16 };

/* Where a record begins: number of a buffer, first byte, bytes or 0, Kind, whether to verify. */
typedef int64_t Place[5];

PyObject *kernel_find_images(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *buffers, *records, *result = NULL;
    Py_ssize_t count, image_size, label_size;
    const char *image_bytes, *label_bytes;
    Views held = {0};
    if (!PyArg_ParseTuple(arguments, "OOny#y#:find_images", &buffers, &records, &count,
                          &image_bytes, &image_size, &label_bytes, &label_size))
        return NULL;
    if (count < 0 || count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(Place)) {
        PyErr_SetString(PyExc_ValueError, "count must be that of the records");
        return NULL;
    }
    Name image = {(const uint8_t *)image_bytes, (size_t)image_size};
    Name label = {(const uint8_t *)label_bytes, (size_t)label_size};
    PyObject *tuple = PySequence_Tuple(buffers); /* Can't be changed meanwhile. */
    if (tuple == NULL) return NULL;
    Place *places = array_of(records, (size_t)count * sizeof *places, "records");
    Contents *found = calloc((size_t)count + 1, sizeof *found);
    if (found == NULL) PyErr_NoMemory();
    if (places == NULL || found == NULL || !views_open(&held, tuple)) goto end;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t n = 0; n < count; n++) {
        const int64_t *place = places[n];
        if (place[0] < 0 || (uint64_t)place[0] >= held.opened || place[1] < 0 || place[2] < 0)
            continue;
        const Py_buffer *view = &held.views[place[0]];
        if (view->buf == NULL) continue;
        found[n] = record_look(view->buf, (size_t)view->len, (size_t)place[1], (size_t)place[2],
                               place[3] == (int32_t)place[3] ? (int)place[3] : 0, place[4] != 0,
                               image, label);
    }
    Py_END_ALLOW_THREADS
    result = PyBytes_FromStringAndSize((const char *)found, count * (Py_ssize_t)sizeof *found);
end:
    views_close(&held);
    free(found);
    free(places);
    Py_DECREF(tuple);
    return result;
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
        crcs32c(views[0].buf, begins, ends, (size_t)count, out);
        Py_END_ALLOW_THREADS
    } else
        crcs32c(views[0].buf, begins, ends, (size_t)count, out);
end:
    while (opened > 0) PyBuffer_Release(&views[--opened]);
    return result;
}
