/* Rows of one size into the columns of a batch. */
#ifndef ADAPTERS_GATHER_H
#define ADAPTERS_GATHER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* gather(file, numbers, rows, starts, stride, kinds, places, lengths, sizes, varints, columns, defaults),
   as module.c describes it. */
PyObject *kernel_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given);

#endif
