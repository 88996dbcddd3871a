/* adapters.images._kernel: the functions that Python sees, each in a file of its own. */
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "functions.h"
#include "jpeg/jpeg.h"
#include "vectors.h"

static PyMethodDef methods[] = {
    {"decode", kernel_decode, METH_VARARGS,
     "decode(buffers, pieces, rows, crops, key, counters, out, shape, channels_first, table)\n"
     " -> bytes\n\n"
     "Find each image in its buffer, and decode what is wanted of it into its row of out; a 1 for\n"
     "each that could be, a 0 for each that another decoder must look at. pieces: int64 (images, 3),\n"
     "number of a buffer, first byte, bytes, or None where each is a buffer; rows: int64; crops:\n"
     "int32 (images, 13), whose rows don't count, or a tuple that they are drawn by: (cut,\n"
     "resize_short, least and most area, ratio, and logarithm of the ratio, flip); counters: uint64\n"
     "(images, 4), or None where nothing is drawn."},
    {"crcs", kernel_crcs, METH_VARARGS,
     "crcs(data, begins, ends) -> bytes\n\n"
     "The CRC-32C of parts of data, uint32 (parts); where they lie: int64 (parts)."},
    {"schema", kernel_schema, METH_O,
     "schema(fields)\n\n"
     "Fields of records that are wanted: (name, list, part, is_place, count, prefix, default row or\n"
     "None), as records.h describes them."},
    {"files", kernel_files, METH_O,
     "files(files)\n\n"
     "Files of records, whose memory is held: (buffer or None, int64 offsets, int64 sizes or None, bool\n"
     "checked, a Kind of records.h or 0, path or b\"\", inode) of each. One of that inode that has become\n"
     "shorter than its buffer isn't read."},
    {"gather", (PyCFunction)(void (*)(void))kernel_gather, METH_FASTCALL,
     "gather(schema, files, numbers, rows, columns)\n\n"
     "Write the fields of records, which are numbered through all files, into rows of columns, or\n"
     "into one after another. None if all were taken, else a byte for each, 1 for one that wasn't,\n"
     "whose row is undefined."},
    {"mix", kernel_mix, METH_VARARGS,
     "mix(images, count, order, shares, floats)\n\n"
     "Mix uint8 or aligned float32 images with the ones behind them in an order of all, the last with\n"
     "the first: their own shares are int64 (count), in 1/256, by their numbers."},
    {"recolour", kernel_recolour, METH_VARARGS,
     "recolour(images, count, height, width, channels_first, matrices, offsets, bits, low, high)\n\n"
     "Replace each pixel of RGB images by matrix @ pixel + offset, (count, 3, 3) and (count), from low\n"
     "to high: of uint8 in int32, shifted by bits; with bits -1, of aligned float32 in float32."},
    {"channel_sums", kernel_channel_sums, METH_VARARGS,
     "channel_sums(images, count, height, width, channels_first, sums, floats)\n\n"
     "The sums of the channels of RGB images, (count, 3): int64 of uint8; or float64 of aligned\n"
     "float32, row upon row and then along it."},
    {"floats", kernel_floats, METH_VARARGS,
     "floats(images, count, channels, out)\n\n"
     "Write uint8 (count, pixels, channels) to float32 (count, channels, pixels), divided by 255."},
    {NULL, NULL, 0, NULL},
};

/* Of what Python calls; `kernel.py` asks for this one. */
enum { VERSION = 11 };

static int initialize(PyObject *module) {
    const char *wanted = getenv("ADAPTERS_VECTORS");
    vectors_are_used = wanted == NULL || strcmp(wanted, "0") != 0;
    if (PyModule_AddIntConstant(module, "VERSION", VERSION) < 0) return -1;
    if (PyModule_AddIntConstant(module, "HUFFMAN_IS_OWN", HUFFMAN_IS_OWN) < 0) return -1;
    return PyModule_AddIntConstant(module, "MOST_PIXELS", MOST_PIXELS);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, initialize}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "Baseline JPEGs, through the system's libjpeg-turbo, and raw images into rows "
             "of a batch.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    return PyModuleDef_Init(&definition);
}
