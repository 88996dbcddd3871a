/* adapters.images._kernel: a batch of pictures into its rows, in one call without the GIL. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "huffman.h"
#include "jpeg.h"
#include "planes.h"

enum { CROP_NUMBERS = sizeof(Crop) / sizeof(int32_t) };

/* An argument's memory, contiguous; NULL, with an exception, where it isn't as large as said. */
static void *memory_of(PyObject *object, Py_buffer *view, int flags, size_t bytes,
                       const char *name) {
    if (PyObject_GetBuffer(object, view, flags | PyBUF_C_CONTIGUOUS) < 0) return NULL;
    if ((size_t)view->len == bytes) return view->buf;
    PyErr_Format(PyExc_ValueError, "%s must be %zu bytes, got %zd", name, bytes, view->len);
    PyBuffer_Release(view);
    return NULL;
}

/* A copy of memory that others may change while the GIL isn't held; NULL, with an exception. */
static void *copy_of(const void *memory, size_t bytes) {
    void *copy = malloc(bytes + 1);
    if (copy == NULL) return PyErr_NoMemory();
    return memcpy(copy, memory, bytes);
}

/* Of pictures of whatever kind; their first byte says which. */
static int is_jpeg(const uint8_t *bytes, size_t size) {
    return size > 0 && bytes[0] == 0xFF;
}

static int picture_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width) {
    return is_jpeg(bytes, size) ? jpeg_size(bytes, size, height, width)
                                : planes_size(bytes, size, height, width);
}

static Outcome picture_decode(Decoder *decoder, Resizer *resizer, const uint8_t *bytes, size_t size,
                              const Crop *crop, const Batch *batch) {
    return is_jpeg(bytes, size) ? decoder_decode(decoder, bytes, size, crop, batch)
                                : planes_resize(resizer, bytes, size, crop, batch);
}

/* Open all buffers, decode without the GIL, let go of them. */
static PyObject *decode_all(PyObject *tuple, const Crop *crops, const Batch *batch) {
    Py_ssize_t count = PyTuple_Size(tuple), opened = 0;
    PyObject *outcomes = NULL;
    Py_buffer *pictures = calloc((size_t)count + 1, sizeof *pictures);
    char *results = malloc((size_t)count + 1);
    if (pictures == NULL || results == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (; opened < count; opened++)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, opened), &pictures[opened], PyBUF_SIMPLE) < 0)
            goto end;
    int has_memory = 1;
    Py_BEGIN_ALLOW_THREADS
    Decoder *decoder = decoder_new();
    Resizer *resizer = resizer_new();
    has_memory = decoder != NULL && resizer != NULL;
    for (Py_ssize_t i = 0; i < count && has_memory; i++) {
        Outcome outcome = picture_decode(decoder, resizer, pictures[i].buf, (size_t)pictures[i].len,
                                         &crops[i], batch);
        has_memory = outcome != NO_MEMORY;
        results[i] = outcome == DECODED;
    }
    decoder_free(decoder);
    resizer_free(resizer);
    Py_END_ALLOW_THREADS
    if (has_memory)
        outcomes = PyBytes_FromStringAndSize(results, count);
    else
        PyErr_NoMemory();
end:
    while (opened > 0) PyBuffer_Release(&pictures[--opened]);
    free(results);
    free(pictures);
    return outcomes;
}

/* The bytes of a batch; 0, with an exception, where there are none so many. */
static size_t bytes_of(const Batch *batch, size_t item) {
    size_t pixels = (size_t)batch->height * (size_t)batch->width, rows = (size_t)batch->rows;
    if (rows == 0 || pixels <= PY_SSIZE_T_MAX / rows / (3 * item)) return rows * pixels * 3 * item;
    PyErr_SetString(PyExc_ValueError, "shape must be that of an array that fits into memory");
    return 0;
}

static PyObject *kernel_decode(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *list, *crops, *out, *table, *result = NULL;
    Py_buffer crops_view, out_view, table_view;
    Batch batch = {0};
    float *values = NULL;
    if (!PyArg_ParseTuple(arguments, "O!OO(iii)pO:decode", &PyList_Type, &list, &crops, &out,
                          &batch.rows, &batch.height, &batch.width, &batch.channels_first, &table))
        return NULL;
    if (batch.rows < 0 || batch.height < 1 || batch.width < 1) {
        PyErr_SetString(PyExc_ValueError, "shape must be (rows, height, width), none below 1");
        return NULL;
    }
    size_t bytes = bytes_of(&batch, table == Py_None ? 1 : sizeof(float));
    if (PyErr_Occurred()) return NULL;
    PyObject *tuple = PyList_AsTuple(list); /* Which nobody can change. */
    if (tuple == NULL) return NULL;
    size_t count = (size_t)PyTuple_Size(tuple);
    const void *given = memory_of(crops, &crops_view, 0, count * sizeof(Crop), "crops");
    if (given == NULL) goto without_crops;
    Crop *wanted = copy_of(given, count * sizeof(Crop));
    PyBuffer_Release(&crops_view);
    if (wanted == NULL) goto without_crops;
    batch.start = memory_of(out, &out_view, PyBUF_WRITABLE, bytes, "out");
    if (batch.start == NULL) goto without_out;
    if (table != Py_None) {
        given = memory_of(table, &table_view, 0, 3 * 256 * sizeof(float), "table");
        if (given == NULL) goto without_table;
        values = copy_of(given, 3 * 256 * sizeof(float));
        PyBuffer_Release(&table_view);
        if (values == NULL) goto without_table;
        batch.table = values;
    }
    result = decode_all(tuple, wanted, &batch);
without_table:
    free(values);
    PyBuffer_Release(&out_view);
without_out:
    free(wanted);
without_crops:
    Py_DECREF(tuple);
    return result;
}

/* (height, width), or None; NULL, with an exception, where there is no memory. */
static PyObject *size_of(PyObject *object) {
    int32_t height, width;
    Py_buffer picture;
    if (PyObject_GetBuffer(object, &picture, PyBUF_SIMPLE) < 0) {
        PyErr_Clear(); /* A decoder will say what it is. */
        return Py_BuildValue("");
    }
    int is_known = picture_size(picture.buf, (size_t)picture.len, &height, &width);
    PyBuffer_Release(&picture);
    return is_known ? Py_BuildValue("(ii)", height, width) : Py_BuildValue("");
}

static PyObject *kernel_sizes(PyObject *self, PyObject *pictures) {
    (void)self;
    PyObject *tuple = PySequence_Tuple(pictures); /* Which nobody can change. */
    if (tuple == NULL) return NULL;
    Py_ssize_t count = PyTuple_Size(tuple);
    PyObject *sizes = PyList_New(count);
    for (Py_ssize_t i = 0; i < count && sizes != NULL; i++) {
        PyObject *size = size_of(PyTuple_GetItem(tuple, i));
        if (size == NULL)
            Py_CLEAR(sizes);
        else
            PyList_SetItem(sizes, i, size);
    }
    Py_DECREF(tuple);
    return sizes;
}

static PyObject *kernel_use_own_huffman(PyObject *self, PyObject *wanted) {
    (void)self;
    int is_wanted = PyObject_IsTrue(wanted);
    if (is_wanted < 0) return NULL;
    huffman_is_used = is_wanted;
    return Py_BuildValue("");
}

static PyMethodDef methods[] = {
    {"use_own_huffman", kernel_use_own_huffman, METH_O,
     "use_own_huffman(wanted)\n\n"
     "Whether libjpeg's Huffman decoding is replaced; said before anything else is decoded."},
    {"sizes", kernel_sizes, METH_O,
     "sizes(pictures) -> list\n\n"
     "(height, width) of each picture, as its header has it; None where that isn't easy to tell."},
    {"decode", kernel_decode, METH_VARARGS,
     "decode(pictures, crops, out, shape, channels_first, table) -> bytes\n\n"
     "Decode what is wanted of each picture into its row of out; a 1 for each that could be, a 0 for\n"
     "each that another decoder must look at."},
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module) {
    if (PyModule_AddIntConstant(module, "CROP_NUMBERS", CROP_NUMBERS) < 0) return -1;
    if (PyModule_AddIntConstant(module, "HUFFMAN_IS_OWN", HUFFMAN_IS_OWN) < 0) return -1;
    return PyModule_AddIntConstant(module, "MOST_PIXELS", MOST_PIXELS);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_constants}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "Baseline JPEGs, through the system's libjpeg-turbo, and raw and YUV pictures into rows "
             "of a batch.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    return PyModuleDef_Init(&definition);
}
