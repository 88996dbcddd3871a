/* RGB pictures through a matrix each, where they lie, the sums of their channels; and pictures mixed
with each other. */
#ifndef ADAPTERS_COLOURS_H
#define ADAPTERS_COLOURS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* mix(images, count, order, shares), mix_floats of the same,
   recolour(images, count, height, width, channels_first, matrices, offsets, bits, low, high),
   channel_sums(images, count, height, width, channels_first, sums), and both for floats, as module.c
   describes them. */
PyObject *kernel_mix(PyObject *self, PyObject *arguments);
PyObject *kernel_mix_floats(PyObject *self, PyObject *arguments);
PyObject *kernel_recolour(PyObject *self, PyObject *arguments);
PyObject *kernel_channel_sums(PyObject *self, PyObject *arguments);
PyObject *kernel_recolour_floats(PyObject *self, PyObject *arguments);
PyObject *kernel_channel_sums_floats(PyObject *self, PyObject *arguments);

#endif
