/* CRCs of parts of memory. */
#ifndef ADAPTERS_IMAGES_CHECKSUMS_H
#define ADAPTERS_IMAGES_CHECKSUMS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* crcs(data, begins, ends), as module.c describes it. */
PyObject *kernel_crcs(PyObject *self, PyObject *arguments);

#endif
