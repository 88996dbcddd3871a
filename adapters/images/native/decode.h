/* Pictures into the rows of a batch, without the GIL. */
#ifndef ADAPTERS_IMAGES_DECODE_H
#define ADAPTERS_IMAGES_DECODE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "batch.h"

enum { CROP_NUMBERS = sizeof(Crop) / sizeof(int32_t) };

/* decode(pictures, crops, out, shape, channels_first, table),
   decode_drawn(buffers, pieces, rows, key, counters, asked, out, shape, channels_first, table),
   crop(size, key, counter, asked, goal) and sizes(pictures), as module.c describes them. */
PyObject *kernel_decode(PyObject *self, PyObject *arguments);
PyObject *kernel_decode_drawn(PyObject *self, PyObject *arguments);
PyObject *kernel_crop(PyObject *self, PyObject *arguments);
PyObject *kernel_sizes(PyObject *self, PyObject *pictures);

#endif
