/* Pictures into the rows of a batch, without the GIL. */
#ifndef ADAPTERS_IMAGES_DECODE_H
#define ADAPTERS_IMAGES_DECODE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "batch.h"

enum { CROP_NUMBERS = sizeof(Crop) / sizeof(int32_t) };

/* decode(buffers, pieces, rows, crops, key, counters, out, shape, channels_first, table),
   crop(size, key, counter, asked, goal) and sizes(pictures), as module.c describes them. */
PyObject *kernel_decode(PyObject *self, PyObject *arguments);
PyObject *kernel_crop(PyObject *self, PyObject *arguments);
PyObject *kernel_sizes(PyObject *self, PyObject *pictures);

#endif
