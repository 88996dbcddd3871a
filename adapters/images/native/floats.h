/* Images as networks take them: floats, channels first. */
#ifndef ADAPTERS_FLOATS_H
#define ADAPTERS_FLOATS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* floats(images, count, channels, out), as module.c describes it. */
PyObject *kernel_floats(PyObject *self, PyObject *arguments);

#endif
