/* RGB pictures of floats through a matrix each, where they lie, and the sums of their channels. */
#ifndef ADAPTERS_TINTS_H
#define ADAPTERS_TINTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* recolour_floats(images, count, height, width, channels_first, matrices, offsets, low, high) and
   channel_sums_floats(images, count, height, width, channels_first, sums), as module.c describes
   them. */
PyObject *kernel_recolour_floats(PyObject *self, PyObject *arguments);
PyObject *kernel_channel_sums_floats(PyObject *self, PyObject *arguments);

#endif
