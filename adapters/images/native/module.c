/* adapters.images._kernel: a batch of pictures into its rows, in one call without the GIL. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "colours.h"
#include "crops.h"
#include "gather.h"
#include "huffman.h"
#include "picture.h"
#include "records.h"

enum { CROP_NUMBERS = sizeof(Crop) / sizeof(int32_t) };

/* A batch whose memory is held, and may be written without the GIL. */
typedef struct {
    Batch batch;
    Py_buffer view;
    float *values;
} Target;

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

/* A copy of an argument's memory; NULL, with an exception. */
static void *array_of(PyObject *object, size_t bytes, const char *name) {
    Py_buffer view;
    const void *given = memory_of(object, &view, 0, bytes, name);
    if (given == NULL) return NULL;
    void *copy = copy_of(given, bytes);
    PyBuffer_Release(&view);
    return copy;
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
    Pictures *decoders = pictures_new();
    has_memory = decoders != NULL;
    for (Py_ssize_t i = 0; i < count && has_memory; i++) {
        Outcome outcome = picture_decode(decoders, pictures[i].buf, (size_t)pictures[i].len,
                                         &crops[i], batch);
        has_memory = outcome != NO_MEMORY;
        results[i] = outcome == DECODED;
    }
    pictures_free(decoders);
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

static void target_close(Target *target) {
    free(target->values);
    PyBuffer_Release(&target->view);
}

/* Hold the memory of a batch whose shape is known; 0, with an exception, where that can't be. */
static int target_open(Target *target, PyObject *out, PyObject *table) {
    Batch *batch = &target->batch;
    if (batch->rows < 0 || batch->height < 1 || batch->width < 1) {
        PyErr_SetString(PyExc_ValueError, "shape must be (rows, height, width), none below 1");
        return 0;
    }
    size_t bytes = bytes_of(batch, table == Py_None ? 1 : sizeof(float));
    if (PyErr_Occurred()) return 0;
    batch->start = memory_of(out, &target->view, PyBUF_WRITABLE, bytes, "out");
    if (batch->start == NULL) return 0;
    if (table == Py_None) return 1;
    batch->table = target->values = array_of(table, 3 * 256 * sizeof(float), "table");
    if (target->values != NULL) return 1;
    target_close(target);
    return 0;
}

static PyObject *kernel_decode(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *list, *crops, *out, *table, *result = NULL;
    Target target = {0};
    Batch *batch = &target.batch;
    if (!PyArg_ParseTuple(arguments, "O!OO(iii)pO:decode", &PyList_Type, &list, &crops, &out,
                          &batch->rows, &batch->height, &batch->width, &batch->channels_first,
                          &table))
        return NULL;
    PyObject *tuple = PyList_AsTuple(list); /* Which nobody can change. */
    if (tuple == NULL) return NULL;
    Crop *wanted = array_of(crops, (size_t)PyTuple_Size(tuple) * sizeof(Crop), "crops");
    if (wanted != NULL && target_open(&target, out, table)) {
        result = decode_all(tuple, wanted, batch);
        target_close(&target);
    }
    free(wanted);
    Py_DECREF(tuple);
    return result;
}

/* What lies where, and what becomes of it; the arrays are copies that nobody else has. */
typedef struct {
    Py_buffer *views;
    size_t opened, count;
    int64_t *pieces; /* (count, 3): number of a buffer, first byte, bytes; or NULL. */
    int64_t *rows;
    uint64_t *key, *counters; /* NULL where nothing is drawn. */
    Asked asked;
    char *outcomes;
} Work;

static void work_close(Work *work) {
    while (work->opened > 0) PyBuffer_Release(&work->views[--work->opened]);
    free(work->views);
    free(work->pieces);
    free(work->rows);
    free(work->key);
    free(work->counters);
    free(work->outcomes);
}

/* Hold all buffers; one that isn't contiguous is as if it were empty. */
static int views_open(Work *work, PyObject *tuple) {
    size_t count = (size_t)PyTuple_Size(tuple);
    work->views = calloc(count + 1, sizeof *work->views);
    if (work->views == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; work->opened < count; work->opened++) {
        PyObject *buffer = PyTuple_GetItem(tuple, (Py_ssize_t)work->opened);
        Py_buffer *view = &work->views[work->opened];
        if (PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE) == 0) continue;
        PyErr_Clear(); /* Another decoder will say what it is. */
        memset(view, 0, sizeof *view);
    }
    return 1;
}

/* Of the n-th image; NULL where it isn't in the buffers. */
static const uint8_t *bytes_at(const Work *work, size_t n, size_t *bytes) {
    const int64_t whole[3] = {(int64_t)n, 0, n < work->opened ? work->views[n].len : 0};
    const int64_t *piece = work->pieces == NULL ? whole : work->pieces + 3 * n;
    if (piece[0] < 0 || (uint64_t)piece[0] >= work->opened) return NULL;
    const Py_buffer *view = &work->views[piece[0]];
    if (view->buf == NULL || piece[1] < 0 || piece[2] < 0 || piece[1] > view->len ||
        piece[2] > view->len - piece[1])
        return NULL;
    *bytes = (size_t)piece[2];
    return (const uint8_t *)view->buf + piece[1];
}

/* Where what is drawn for the n-th image begins; NULL where nothing is drawn. */
static const Seed *seed_of(const Work *work, size_t n, Seed *seed) {
    if (work->counters == NULL) return NULL;
    memcpy(seed->key, work->key, sizeof seed->key);
    memcpy(seed->counter, work->counters + 4 * n, sizeof seed->counter);
    return seed;
}

/* 0 where there is no memory. */
static int work_do(const Work *work, const Batch *batch) {
    Pictures *pictures = pictures_new();
    int has_memory = pictures != NULL;
    for (size_t n = 0; n < work->count && has_memory; n++) {
        size_t bytes;
        int32_t height, width;
        Seed seed;
        Crop crop;
        const uint8_t *start = bytes_at(work, n, &bytes);
        work->outcomes[n] = 0;
        if (start == NULL || !picture_size(start, bytes, &height, &width) ||
            !crop_of(&work->asked, seed_of(work, n, &seed), height, width,
                     picture_is_reducible(start, bytes), batch, &crop))
            continue;
        crop.row = work->rows[n] < INT32_MAX ? (int32_t)(work->rows[n] < 0 ? -1 : work->rows[n]) : -1;
        Outcome outcome = picture_decode(pictures, start, bytes, &crop, batch);
        has_memory = outcome != NO_MEMORY;
        work->outcomes[n] = outcome == DECODED;
    }
    pictures_free(pictures);
    return has_memory;
}

#define ASKED "(iiddddddp)"
#define INTO(asked)                                                                               \
    &(asked).cut, &(asked).resize_short, &(asked).area[0], &(asked).area[1], &(asked).ratio[0],    \
        &(asked).ratio[1], &(asked).log_ratio[0], &(asked).log_ratio[1], &(asked).flip

static PyObject *kernel_decode_drawn(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *buffers, *pieces, *rows, *key, *counters, *out, *table, *result = NULL;
    Work work = {0};
    Target target = {0};
    Batch *batch = &target.batch;
    if (!PyArg_ParseTuple(arguments, "OOOOO" ASKED "O(iii)pO:decode_drawn", &buffers, &pieces,
                          &rows, &key, &counters, INTO(work.asked), &out, &batch->rows,
                          &batch->height, &batch->width, &batch->channels_first, &table))
        return NULL;
    PyObject *tuple = PySequence_Tuple(buffers); /* Which nobody can change. */
    Py_ssize_t count = tuple == NULL ? -1 : PyObject_Size(rows);
    if (count < 0) goto end;
    work.count = (size_t)count;
    if (pieces != Py_None &&
        (work.pieces = array_of(pieces, 3 * work.count * sizeof(int64_t), "pieces")) == NULL)
        goto end;
    if ((work.rows = array_of(rows, work.count * sizeof(int64_t), "rows")) == NULL) goto end;
    if (counters != Py_None &&
        ((work.key = array_of(key, 2 * sizeof(uint64_t), "key")) == NULL ||
         (work.counters = array_of(counters, 4 * work.count * sizeof(uint64_t), "counters")) ==
             NULL))
        goto end;
    if ((work.outcomes = malloc(work.count + 1)) == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if (!views_open(&work, tuple) || !target_open(&target, out, table)) goto end;
    int has_memory;
    Py_BEGIN_ALLOW_THREADS
    has_memory = work_do(&work, batch);
    Py_END_ALLOW_THREADS
    target_close(&target);
    result = has_memory ? PyBytes_FromStringAndSize(work.outcomes, count) : PyErr_NoMemory();
end:
    work_close(&work);
    Py_XDECREF(tuple);
    return result;
}

/* Where a record begins: number of a buffer, first byte, bytes or 0, Kind, whether to verify. */
typedef int64_t Place[5];

static PyObject *kernel_find_images(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *buffers, *records, *result = NULL;
    Py_ssize_t count, image_size, label_size;
    const char *image_bytes, *label_bytes;
    Work work = {0};
    if (!PyArg_ParseTuple(arguments, "OOny#y#:find_images", &buffers, &records, &count,
                          &image_bytes, &image_size, &label_bytes, &label_size))
        return NULL;
    if (count < 0 || count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(Place)) {
        PyErr_SetString(PyExc_ValueError, "count must be that of the records");
        return NULL;
    }
    Name image = {(const uint8_t *)image_bytes, (size_t)image_size};
    Name label = {(const uint8_t *)label_bytes, (size_t)label_size};
    PyObject *tuple = PySequence_Tuple(buffers); /* Which nobody can change. */
    if (tuple == NULL) return NULL;
    Place *places = array_of(records, (size_t)count * sizeof *places, "records");
    Contents *found = calloc((size_t)count + 1, sizeof *found);
    if (found == NULL) PyErr_NoMemory();
    if (places == NULL || found == NULL || !views_open(&work, tuple)) goto end;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t n = 0; n < count; n++) {
        const int64_t *place = places[n];
        if (place[0] < 0 || (uint64_t)place[0] >= work.opened || place[1] < 0 || place[2] < 0)
            continue;
        const Py_buffer *view = &work.views[place[0]];
        if (view->buf == NULL) continue;
        found[n] = record_look(view->buf, (size_t)view->len, (size_t)place[1], (size_t)place[2],
                               place[3] == (int32_t)place[3] ? (int)place[3] : 0, place[4] != 0,
                               image, label);
    }
    Py_END_ALLOW_THREADS
    result = PyBytes_FromStringAndSize((const char *)found, count * (Py_ssize_t)sizeof *found);
end:
    work_close(&work);
    free(found);
    free(places);
    Py_DECREF(tuple);
    return result;
}

static PyObject *kernel_crop(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *key, *counter;
    int32_t height, width;
    Asked asked;
    Batch batch = {0};
    Seed seed;
    Crop crop;
    if (!PyArg_ParseTuple(arguments, "(ii)OO" ASKED "(ii):crop", &height, &width, &key, &counter,
                          INTO(asked), &batch.height, &batch.width))
        return NULL;
    if (height < 1 || width < 1 || height > MOST_PIXELS / width || batch.height < 1 ||
        batch.width < 1) {
        PyErr_SetString(PyExc_ValueError, "sizes must be (height, width), none below 1");
        return NULL;
    }
    if (counter != Py_None) {
        uint64_t *first = array_of(key, sizeof seed.key, "key"), *second = NULL;
        if (first != NULL) second = array_of(counter, sizeof seed.counter, "counter");
        if (second != NULL) {
            memcpy(seed.key, first, sizeof seed.key);
            memcpy(seed.counter, second, sizeof seed.counter);
        }
        free(first);
        free(second);
        if (second == NULL) return NULL;
    }
    const Seed *drawn = counter == Py_None ? NULL : &seed;
    if (!crop_of(&asked, drawn, height, width, 1, &batch, &crop)) return Py_BuildValue("");
    crop.row = 0;
    return PyBytes_FromStringAndSize((const char *)&crop, sizeof crop);
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
    {"decode_drawn", kernel_decode_drawn, METH_VARARGS,
     "decode_drawn(buffers, pieces, rows, key, counters, asked, out, shape, channels_first, table)\n"
     " -> bytes\n\n"
     "Find each picture in its buffer, draw what is wanted of it, decode that into its row of out; as\n"
     "decode says how that went. pieces: int64 (images, 3), number of a buffer, first byte, bytes,\n"
     "or None where each is a buffer; rows: int64; counters: uint64 (images, 4), or None where nothing is drawn; asked: (cut,\n"
     "resize_short, least and most area, ratio, and logarithm of the ratio, flip)."},
    {"find_images", kernel_find_images, METH_VARARGS,
     "find_images(buffers, records, count, image, label) -> bytes\n\n"
     "Where the images of records lie, and their labels: records.h's Contents of each. records:\n"
     "int64 (count, 5), number of a buffer, first byte, bytes or 0, which kind of record, and\n"
     "whether to verify it; image, label: what the features are called."},
    {"gather", kernel_gather, METH_VARARGS,
     "gather(file, numbers, rows, starts, stride, kinds, places, lengths, sizes, varints, columns,\n"
     "       defaults)\n\n"
     "Write fields of records into rows of columns: bytes as they are, or varints as int64. None\n"
     "if all are right, else a byte for each record, 1 for one that isn't, whose row is undefined."},
    {"mix", kernel_mix, METH_VARARGS,
     "mix(images, count, order, shares)\n\n"
     "Mix uint8 images with the ones behind them in an order of all, the last with the first: their\n"
     "own shares are int64 (count), in 1/256, by their numbers."},
    {"recolour", kernel_recolour, METH_VARARGS,
     "recolour(images, count, channels_first, matrices, offsets, bits, low, high)\n\n"
     "Replace each pixel of uint8 RGB images by (matrix @ pixel + offset) >> bits, from low to high:\n"
     "int32, (count, 3, 3) and (count)."},
    {"channel_sums", kernel_channel_sums, METH_VARARGS,
     "channel_sums(images, count, channels_first, sums)\n\n"
     "The sums of the channels of uint8 RGB images: int64, (count, 3)."},
    {"crop", kernel_crop, METH_VARARGS,
     "crop(size, key, counter, asked, goal) -> bytes\n\n"
     "The numbers of what is wanted of an image of a size, row 0; None where they are beyond it."},
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
