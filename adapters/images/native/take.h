/* Rows of arrays, by their numbers. */
#ifndef ADAPTERS_TAKE_H
#define ADAPTERS_TAKE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* take(arrays, numbers, outs, places, kept), as module.c describes it. */
PyObject *kernel_take(PyObject *self, PyObject *const *arguments, Py_ssize_t given);

#endif
