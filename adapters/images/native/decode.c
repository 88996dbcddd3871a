/* Images of any kind into rows of a batch: JPEGs and raw ones, whole or by pieces of buffers. */
#include "functions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "crops.h"
#include "jpeg/jpeg.h"
#include "raw.h"

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
    int *files; /* Descriptor of each buffer that is a file; or -1. */
    uint8_t *read; /* The image read last from a file. */
    size_t read_size;
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
    free(work->files);
    free(work->read);
    free(work->pieces);
    free(work->rows);
    free(work->crops);
    free(work->key);
    free(work->counters);
    free(work->outcomes);
}

/* Buffers that have no memory may be files; 0, with an exception, where there is no memory. */
static int files_open(Work *work, PyObject *tuple) {
    work->files = malloc((work->buffers.opened + 1) * sizeof *work->files);
    if (work->files == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (size_t n = 0; n < work->buffers.opened; n++) {
        work->files[n] = -1;
        if (work->buffers.views[n].obj != NULL) continue;
        work->files[n] = PyObject_AsFileDescriptor(PyTuple_GetItem(tuple, (Py_ssize_t)n));
        PyErr_Clear(); /* Another decoder will say what it is. */
    }
    return 1;
}

/* A piece of a file, until the next one is read; NULL where the file hasn't got it. */
static const uint8_t *read_piece(Work *work, const int64_t *piece) {
    size_t size = (size_t)piece[2];
    if (piece[1] < 0 || piece[2] < 1) return NULL;
    if (size > work->read_size) {
        uint8_t *memory = realloc(work->read, size);
        if (memory == NULL) return NULL;
        work->read = memory, work->read_size = size;
    }
    ssize_t got = pread(work->files[piece[0]], work->read, size, (off_t)piece[1]);
    return got == (ssize_t)size ? work->read : NULL;
}

/* Of the n-th image; NULL where it isn't in the buffers. */
static const uint8_t *bytes_at(Work *work, size_t n, size_t *bytes) {
    const int64_t whole[3] = {(int64_t)n, 0, n < work->buffers.opened ? work->buffers.views[n].len : 0};
    const int64_t *piece = work->pieces == NULL ? whole : work->pieces + 3 * n;
    if (piece[0] < 0 || (uint64_t)piece[0] >= work->buffers.opened) return NULL;
    const Py_buffer *view = &work->buffers.views[piece[0]];
    *bytes = (size_t)piece[2];
    if (work->files[piece[0]] >= 0) return read_piece(work, piece);
    if (view->buf == NULL || piece[1] < 0 || piece[2] < 0 || piece[1] > view->len ||
        piece[2] > view->len - piece[1])
        return NULL;
    return (const uint8_t *)view->buf + piece[1];
}

/* Where what is drawn for the n-th image begins; NULL where nothing is drawn. */
static const Seed *seed_of(const Work *work, size_t n, Seed *seed) {
    if (work->counters == NULL) return NULL;
    memcpy(seed->key, work->key, sizeof seed->key);
    memcpy(seed->counter, work->counters + 4 * n, sizeof seed->counter);
    return seed;
}

/* No other kind begins with this byte. */
static int is_jpeg(const uint8_t *bytes, size_t size) {
    return size > 0 && bytes[0] == 0xFF;
}

/* The crop of the n-th image, all but its row; 0 where another decoder must look at it. */
static int crop_at(const Work *work, size_t n, const uint8_t *start, size_t bytes,
                   const Batch *batch, Crop *crop) {
    int32_t height, width;
    int is_reducible = is_jpeg(start, bytes);
    Seed seed;
    if (work->crops != NULL) {
        *crop = work->crops[n];
        return 1;
    }
    if (!(is_reducible ? jpeg_size : raw_size)(start, bytes, &height, &width)) return 0;
    return crop_of(&work->asked, seed_of(work, n, &seed), height, width, is_reducible, batch, crop);
}

/* 0 where there is no memory. */
static int work_do(Work *work, const Batch *batch) {
    Decoder *decoder = decoder_new();
    Resizer *resizer = resizer_new();
    int has_memory = decoder != NULL && resizer != NULL;
    for (size_t n = 0; n < work->count && has_memory; n++) {
        size_t bytes;
        Crop crop;
        const uint8_t *start = bytes_at(work, n, &bytes);
        work->outcomes[n] = 0;
        if (start == NULL || !crop_at(work, n, start, bytes, batch, &crop)) continue;
        int is_row = work->rows[n] >= 0 && work->rows[n] < INT32_MAX;
        crop.row = is_row ? (int32_t)work->rows[n] : -1;
        Outcome outcome = is_jpeg(start, bytes)
                              ? decoder_decode(decoder, start, bytes, &crop, batch)
                              : raw_resize(resizer, start, bytes, &crop, batch);
        has_memory = outcome != NO_MEMORY;
        work->outcomes[n] = outcome == DECODED;
    }
    decoder_free(decoder);
    resizer_free(resizer);
    return has_memory;
}

/* Settings that crops are drawn by; 0, with an exception, where they aren't of those types. */
static int read_asked(PyObject *settings, Asked *asked) {
    return PyArg_ParseTuple(settings, "iiddddddp", &asked->cut, &asked->resize_short,
                            &asked->area[0], &asked->area[1], &asked->ratio[0], &asked->ratio[1],
                            &asked->log_ratio[0], &asked->log_ratio[1], &asked->flip);
}

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
    if (PyTuple_Check(crops) && !read_asked(crops, &work.asked)) return NULL;
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
    if (!views_open(&work.buffers, tuple) || !files_open(&work, tuple) ||
        !target_open(&target, out, table)) goto end;
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
