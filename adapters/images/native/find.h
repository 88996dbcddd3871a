/* Where the images of records lie. */
#ifndef ADAPTERS_IMAGES_FIND_H
#define ADAPTERS_IMAGES_FIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* find_images(buffers, records, count, image, label), as module.c describes it. */
PyObject *kernel_find_images(PyObject *self, PyObject *arguments);

#endif
