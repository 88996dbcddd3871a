/* Where the images of records lie, and CRCs. */
#ifndef ADAPTERS_IMAGES_FIND_H
#define ADAPTERS_IMAGES_FIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* find_images(buffers, records, count, image, label) and crcs(data, begins, ends), as module.c
   describes them. */
PyObject *kernel_find_images(PyObject *self, PyObject *arguments);
PyObject *kernel_crcs(PyObject *self, PyObject *arguments);

#endif
