/* Images of any kind into rows of a batch: JPEGs and raw ones, whole or by pieces of buffers. */
#include "functions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crops.h"
#include "jpeg/jpeg.h"
#include "raw.h"

/* An image's memory, or the file that it is a piece of. */
typedef struct {
    Py_buffer view;
    int file; /* Descriptor, or -1. */
} Source;

/* What lies where, and what becomes of it. Arrays are held, not copied: each number is read once,
 * and checked where it was put. */
typedef struct {
    Source *sources;
    size_t opened, count;
    uint8_t *read; /* The image read last from a file. */
    size_t read_size;
    Py_buffer pieces; /* int64 (count, 3): number of a source, first byte, bytes; or NULL. */
    Py_buffer rows;   /* int64 (count). */
    Py_buffer crops;  /* Crop (count); or NULL, where they are made of `asked`. */
    Py_buffer key, counters; /* NULL where nothing is drawn. */
    Py_buffer out, table;
    Asked asked;
    char *outcomes;
} Work;

static void work_close(Work *work) {
    Py_buffer *views[] = {&work->pieces,   &work->rows, &work->crops, &work->key,
                          &work->counters, &work->out,  &work->table};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) PyBuffer_Release(views[i]);
    while (work->opened > 0) PyBuffer_Release(&work->sources[--work->opened].view);
    free(work->sources);
    free(work->read);
    free(work->outcomes);
}

/* Hold the memory of all buffers, some of which may be files; 0, with an exception, where there is
 * no memory. */
static int sources_open(Work *work, PyObject *tuple) {
    size_t count = (size_t)PyTuple_Size(tuple);
    work->sources = calloc(count + 1, sizeof *work->sources);
    if (work->sources == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; work->opened < count; work->opened++) {
        PyObject *buffer = PyTuple_GetItem(tuple, (Py_ssize_t)work->opened);
        Source *source = &work->sources[work->opened];
        source->file = -1;
        if (PyObject_GetBuffer(buffer, &source->view, PyBUF_SIMPLE) == 0) continue;
        PyErr_Clear();
        memset(&source->view, 0, sizeof source->view);
        source->file = PyObject_AsFileDescriptor(buffer);
        PyErr_Clear(); /* Another decoder will say what it is. */
    }
    return 1;
}

/* Whether an argument is None, or as large as said; an exception where it isn't. */
static int fits(const Py_buffer *view, size_t bytes, const char *name) {
    return view->buf == NULL || has_bytes(view, bytes, name);
}

/* Put the arrays into the batch; 0, with an exception, where one isn't as large as it must be. */
static int arrays_fit(Work *work, Batch *batch) {
    size_t rows = (size_t)batch->rows, item = work->table.buf ? sizeof(float) : 1;
    size_t pixels = (size_t)batch->height * (size_t)batch->width, count = work->count;
    if (batch->rows < 0 || batch->height < 1 || batch->width < 1 ||
        (rows > 0 && pixels > PY_SSIZE_T_MAX / rows / (3 * item))) {
        PyErr_SetString(PyExc_ValueError,
                        "shape must be (rows, height, width) of an array, none below 1");
        return 0;
    }
    if (!has_bytes(&work->out, rows * pixels * 3 * item, "out") ||
        !has_bytes(&work->rows, count * sizeof(int64_t), "rows") ||
        !fits(&work->pieces, 3 * count * sizeof(int64_t), "pieces") ||
        !fits(&work->crops, count * sizeof(Crop), "crops") ||
        !fits(&work->counters, 4 * count * sizeof(uint64_t), "counters") ||
        (work->counters.buf && !has_bytes(&work->key, 2 * sizeof(uint64_t), "key")) ||
        !fits(&work->table, 3 * 256 * sizeof(float), "table"))
        return 0;
    batch->start = work->out.buf, batch->table = work->table.buf;
    batch->is_cast = batch->table != NULL;
    for (int i = 0; batch->is_cast && i < 3 * 256; i++)
        batch->is_cast = batch->table[i] == (float)(i % 256);
    return 1;
}

/* A piece of a file, until the next one is read; NULL where the file hasn't got it. */
static const uint8_t *read_piece(Work *work, int file, int64_t begin, int64_t bytes) {
    size_t size = (size_t)bytes;
    if (begin < 0 || bytes < 1) return NULL;
    if (size > work->read_size) {
        uint8_t *memory = realloc(work->read, size);
        if (memory == NULL) return NULL;
        work->read = memory, work->read_size = size;
    }
    ssize_t got = pread(file, work->read, size, (off_t)begin);
    return got == (ssize_t)size ? work->read : NULL;
}

/* Where the n-th image begins, and how large it is; NULL where there is none. */
static const uint8_t *bytes_at(Work *work, size_t n, size_t *bytes) {
    int64_t piece[3] = {(int64_t)n, 0, 0};
    if (work->pieces.buf) memcpy(piece, (int64_t *)work->pieces.buf + 3 * n, sizeof piece);
    if (piece[0] < 0 || (uint64_t)piece[0] >= work->opened) return NULL;
    const Source *source = &work->sources[piece[0]];
    const Py_buffer *view = &source->view;
    if (!work->pieces.buf) piece[2] = view->len;
    *bytes = (size_t)piece[2];
    if (source->file >= 0) return read_piece(work, source->file, piece[1], piece[2]);
    if (view->buf == NULL || piece[1] < 0 || piece[2] < 0 || piece[1] > view->len ||
        piece[2] > view->len - piece[1])
        return NULL;
    return (const uint8_t *)view->buf + piece[1];
}

/* No other kind begins with this byte. */
static int is_jpeg(const uint8_t *bytes, size_t size) {
    return size > 0 && bytes[0] == 0xFF;
}

/* The crop of the n-th image; 0 where another decoder must look at it. */
static int crop_at(const Work *work, size_t n, const uint8_t *start, size_t bytes,
                   const Batch *batch, Crop *crop) {
    int64_t row;
    int32_t height, width;
    int is_reducible = is_jpeg(start, bytes), draws = work->counters.buf != NULL;
    memcpy(&row, (int64_t *)work->rows.buf + n, sizeof row);
    if (!(is_reducible ? jpeg_size : raw_size)(start, bytes, &height, &width)) return 0;
    if (work->crops.buf) {
        memcpy(crop, (Crop *)work->crops.buf + n, sizeof *crop);
    } else {
        Seed seed;
        if (draws) {
            memcpy(seed.key, work->key.buf, sizeof seed.key);
            memcpy(seed.counter, (uint64_t *)work->counters.buf + 4 * n, sizeof seed.counter);
        }
        if (!crop_of(&work->asked, draws ? &seed : NULL, height, width, is_reducible, batch, crop))
            return 0;
    }
    crop->row = row >= 0 && row < INT32_MAX ? (int32_t)row : -1;
    return 1;
}

/* 0 where there is no memory. */
static int work_do(Work *work, const Batch *batch) {
    Decoder *decoder = decoder_new();
    Workspace workspace = {0};
    int has_memory = decoder != NULL;
    for (size_t n = 0; n < work->count && has_memory; n++) {
        size_t bytes;
        Crop crop;
        const uint8_t *start = bytes_at(work, n, &bytes);
        work->outcomes[n] = 0;
        if (start == NULL || !crop_at(work, n, start, bytes, batch, &crop)) continue;
        Outcome outcome = is_jpeg(start, bytes)
                              ? decoder_decode(decoder, start, bytes, &crop, batch)
                              : raw_resize(&workspace, start, bytes, &crop, batch);
        has_memory = outcome != NO_MEMORY;
        work->outcomes[n] = outcome == DECODED;
    }
    decoder_free(decoder);
    workspace_free(&workspace);
    return has_memory;
}

/* Settings that crops are drawn by, or ready crops; 0, with an exception, for anything else. */
static int crops_open(Work *work, PyObject *crops) {
    Asked *asked = &work->asked;
    if (!PyTuple_Check(crops)) return PyObject_GetBuffer(crops, &work->crops, PyBUF_SIMPLE) == 0;
    return PyArg_ParseTuple(crops, "iiddddddp", &asked->cut, &asked->resize_short, &asked->area[0],
                            &asked->area[1], &asked->ratio[0], &asked->ratio[1],
                            &asked->log_ratio[0], &asked->log_ratio[1], &asked->flip);
}

PyObject *kernel_decode(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *buffers, *crops, *result = NULL;
    Work work = {0};
    Batch batch = {0};
    if (!PyArg_ParseTuple(arguments, "Oz*y*Oz*z*w*(iii)pz*:decode", &buffers, &work.pieces,
                          &work.rows, &crops, &work.key, &work.counters, &work.out, &batch.rows,
                          &batch.height, &batch.width, &batch.channels_first, &work.table))
        return NULL;
    PyObject *tuple = PySequence_Tuple(buffers); /* Can't be changed meanwhile. */
    work.count = (size_t)work.rows.len / sizeof(int64_t);
    if (tuple != NULL && crops_open(&work, crops) && arrays_fit(&work, &batch) &&
        sources_open(&work, tuple)) {
        int has_memory;
        work.outcomes = malloc(work.count + 1);
        Py_BEGIN_ALLOW_THREADS
        has_memory = work.outcomes != NULL && work_do(&work, &batch);
        Py_END_ALLOW_THREADS
        result = has_memory ? PyBytes_FromStringAndSize(work.outcomes, (Py_ssize_t)work.count)
                            : PyErr_NoMemory();
    }
    work_close(&work);
    Py_XDECREF(tuple);
    return result;
}
