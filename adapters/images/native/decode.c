#include "decode.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "crops.h"
#include "picture.h"

/* A batch whose memory is held, and may be written without the GIL. */
typedef struct {
    Batch batch;
    Py_buffer view;
    float *values;
} Target;

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
    if (target->values == NULL) {
        target_close(target);
        return 0;
    }
    batch->is_cast = 1;
    for (int i = 0; i < 3 * 256; i++) batch->is_cast &= batch->table[i] == (float)(i % 256);
    return 1;
}

/* What lies where, and what becomes of it; the arrays are private copies. */
typedef struct {
    Views buffers;
    size_t count;
    int64_t *pieces; /* (count, 3): number of a buffer, first byte, bytes; or NULL. */
    int64_t *rows;
    Crop *crops;              /* Or NULL, where they are made of `asked`. */
    uint64_t *key, *counters; /* NULL where nothing is drawn. */
    Asked asked;
    char *outcomes;
} Work;

static void work_close(Work *work) {
    views_close(&work->buffers);
    free(work->pieces);
    free(work->rows);
    free(work->crops);
    free(work->key);
    free(work->counters);
    free(work->outcomes);
}

/* Of the n-th image; NULL where it isn't in the buffers. */
static const uint8_t *bytes_at(const Work *work, size_t n, size_t *bytes) {
    const int64_t whole[3] = {(int64_t)n, 0, n < work->buffers.opened ? work->buffers.views[n].len : 0};
    const int64_t *piece = work->pieces == NULL ? whole : work->pieces + 3 * n;
    if (piece[0] < 0 || (uint64_t)piece[0] >= work->buffers.opened) return NULL;
    const Py_buffer *view = &work->buffers.views[piece[0]];
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

/* The crop of the n-th image, all but its row; 0 where another decoder must look at it. */
static int crop_at(const Work *work, size_t n, const uint8_t *start, size_t bytes,
                   const Batch *batch, Crop *crop) {
    int32_t height, width;
    Seed seed;
    if (work->crops == NULL)
        return picture_size(start, bytes, &height, &width) &&
               crop_of(&work->asked, seed_of(work, n, &seed), height, width,
                       picture_is_reducible(start, bytes), batch, crop);
    *crop = work->crops[n];
    return 1;
}

/* 0 where there is no memory. */
static int work_do(const Work *work, const Batch *batch) {
    Pictures *pictures = pictures_new();
    int has_memory = pictures != NULL;
    for (size_t n = 0; n < work->count && has_memory; n++) {
        size_t bytes;
        Crop crop;
        const uint8_t *start = bytes_at(work, n, &bytes);
        work->outcomes[n] = 0;
        if (start == NULL || !crop_at(work, n, start, bytes, batch, &crop)) continue;
        int is_row = work->rows[n] >= 0 && work->rows[n] < INT32_MAX;
        crop.row = is_row ? (int32_t)work->rows[n] : -1;
        Outcome outcome = picture_decode(pictures, start, bytes, &crop, batch);
        has_memory = outcome != NO_MEMORY;
        work->outcomes[n] = outcome == DECODED;
    }
    pictures_free(pictures);
    return has_memory;
}

#define ASKED "iiddddddp"
#define INTO(asked)                                                                               \
    &(asked).cut, &(asked).resize_short, &(asked).area[0], &(asked).area[1], &(asked).ratio[0],    \
        &(asked).ratio[1], &(asked).log_ratio[0], &(asked).log_ratio[1], &(asked).flip

PyObject *kernel_decode(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *buffers, *pieces, *rows, *crops, *key, *counters, *out, *table, *result = NULL;
    Work work = {0};
    Target target = {0};
    Batch *batch = &target.batch;
    if (!PyArg_ParseTuple(arguments, "OOOOOOO(iii)pO:decode", &buffers, &pieces, &rows, &crops,
                          &key, &counters, &out, &batch->rows, &batch->height, &batch->width,
                          &batch->channels_first, &table))
        return NULL;
    /* Either a tuple of settings, from which crops are drawn, or an array of ready crops. */
    if (PyTuple_Check(crops) && !PyArg_ParseTuple(crops, ASKED, INTO(work.asked))) return NULL;
    PyObject *tuple = PySequence_Tuple(buffers); /* Can't be changed meanwhile. */
    Py_ssize_t count = tuple == NULL ? -1 : PyObject_Size(rows);
    if (count < 0) goto end;
    work.count = (size_t)count;
    if (pieces != Py_None &&
        (work.pieces = array_of(pieces, 3 * work.count * sizeof(int64_t), "pieces")) == NULL)
        goto end;
    if ((work.rows = array_of(rows, work.count * sizeof(int64_t), "rows")) == NULL) goto end;
    if (!PyTuple_Check(crops) &&
        (work.crops = array_of(crops, work.count * sizeof(Crop), "crops")) == NULL)
        goto end;
    if (counters != Py_None &&
        ((work.key = array_of(key, 2 * sizeof(uint64_t), "key")) == NULL ||
         (work.counters = array_of(counters, 4 * work.count * sizeof(uint64_t), "counters")) ==
             NULL))
        goto end;
    if ((work.outcomes = malloc(work.count + 1)) == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if (!views_open(&work.buffers, tuple) || !target_open(&target, out, table)) goto end;
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

PyObject *kernel_crop(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *key, *counter;
    int32_t height, width;
    Asked asked;
    Batch batch = {0};
    Seed seed;
    Crop crop;
    if (!PyArg_ParseTuple(arguments, "(ii)OO(" ASKED ")(ii):crop", &height, &width, &key, &counter,
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

PyObject *kernel_sizes(PyObject *self, PyObject *pictures) {
    (void)self;
    PyObject *tuple = PySequence_Tuple(pictures); /* Can't be changed meanwhile. */
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
