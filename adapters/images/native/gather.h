/* Features of records into the columns of a batch. */
#ifndef ADAPTERS_IMAGES_GATHER_H
#define ADAPTERS_IMAGES_GATHER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* schema(fields), files(buffers, offsets, sizes, checked, kinds) and gather(schema, files, numbers,
   rows, columns), as module.c describes them. */
PyObject *kernel_schema(PyObject *self, PyObject *fields);
PyObject *kernel_files(PyObject *self, PyObject *arguments);
PyObject *kernel_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given);

#endif
