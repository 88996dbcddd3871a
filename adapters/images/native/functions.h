/* The functions that Python sees, as module.c describes them. */
#ifndef ADAPTERS_IMAGES_FUNCTIONS_H
#define ADAPTERS_IMAGES_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* 0, with an exception, where an argument isn't as large as said. */
static inline int has_bytes(const Py_buffer *view, size_t bytes, const char *name) {
    if ((size_t)view->len == bytes) return 1;
    PyErr_Format(PyExc_ValueError, "%s must be %zu bytes, got %zd", name, bytes, view->len);
    return 0;
}

PyObject *kernel_decode(PyObject *self, PyObject *arguments);
PyObject *kernel_crcs(PyObject *self, PyObject *arguments);
PyObject *kernel_schema(PyObject *self, PyObject *fields);
PyObject *kernel_files(PyObject *self, PyObject *files);
PyObject *kernel_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given);
PyObject *kernel_mix(PyObject *self, PyObject *arguments);
PyObject *kernel_recolour(PyObject *self, PyObject *arguments);
PyObject *kernel_channel_sums(PyObject *self, PyObject *arguments);
PyObject *kernel_floats(PyObject *self, PyObject *arguments);

#endif
