/* Fields of records, or rows of arrays, into rows of a batch, in one call: raw pictures, and what is
stored beside them.

What a record's kind says about where its fields lie is taken on trust nowhere: each row is checked
against the file's end and its varints, and one that isn't right is told, and left to others. */
#include "gather.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"

enum {
    MOST_FIELDS = 1 << 12,
    MOST_VARINT_BYTES = 10,
    /* Below it, the GIL is kept: who gives it away may wait long to have it back. Above, the disk
       may be waited for, and others read on meanwhile. */
    MUCH_BYTES = 1 << 14,
};

typedef struct {
    uint8_t *rows;
    const uint8_t *default_row; /* Or NULL. */
} Column;

typedef struct {
    const uint8_t *file;
    int64_t file_bytes;
    Py_ssize_t count, fields, kinds, records;
    const int64_t *numbers;          /* Of the records that are wanted, (count). */
    const int64_t *rows;             /* Into which they go, (count); NULL: one after another. */
    const int64_t *starts;           /* Of all records. */
    const int16_t *kind_of;          /* Of all records; NULL: all are of kind 0. */
    const int32_t *places, *lengths; /* (kinds, fields), from a record's start; -1 if missing. */
    const int64_t *sizes;            /* (fields): bytes in a row. */
    const int64_t *varints;          /* (fields): how many varints a row is; 0: bytes as they are. */
    Column *columns;
    char *wrong; /* (count) */
} Gather;

/* Whether that many varints, and no byte more, lie there. */
static int read_varints(const uint8_t *at, const uint8_t *end, int64_t count, uint8_t *row) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = 0;
        int shift = 0;
        for (;; shift += 7) {
            if (at == end || shift == 7 * MOST_VARINT_BYTES) return 0;
            uint8_t byte = *at++;
            if (shift == 63 && byte > 1) return 0;
            value |= (uint64_t)(byte & 127) << shift;
            if (byte < 128) break;
        }
        memcpy(row + 8 * i, &value, sizeof value);
    }
    return at == end;
}

/* Where a record begins, and its kind; -1 where it has none, or doesn't begin in the file. Others may
   write kinds meanwhile. */
static Py_ssize_t kind_at(const Gather *g, Py_ssize_t at, int64_t *start) {
    int64_t number = g->numbers[at];
    if (number < 0 || number >= g->records) return -1;
    Py_ssize_t kind = g->kind_of == NULL ? 0 : g->kind_of[number];
    *start = g->starts[number];
    return *start < 0 || *start > g->file_bytes || kind >= g->kinds ? -1 : kind;
}

static void ask_for(const Gather *g, Py_ssize_t at) {
    int64_t start;
    Py_ssize_t kind = kind_at(g, at, &start);
    for (Py_ssize_t field = 0; kind >= 0 && field < g->fields; field++) {
        int64_t place = g->places[kind * g->fields + field];
        int64_t bytes = g->lengths[kind * g->fields + field];
        if (place >= 0 && bytes > 0)
            ask_for_bytes((const uint8_t *)((uintptr_t)g->file + (uint64_t)start + (uint64_t)place), bytes);
    }
}

/* The same for what says where a record begins. */
static void ask_where(const Gather *g, Py_ssize_t at) {
#ifdef __GNUC__
    int64_t number = g->numbers[at];
    if (number < 0 || number >= g->records) return;
    __builtin_prefetch(&g->starts[number]);
    if (g->kind_of != NULL) __builtin_prefetch(&g->kind_of[number]);
#endif
}

static int read_record(const Gather *g, Py_ssize_t at) {
    int64_t start, row = g->rows == NULL ? at : g->rows[at];
    Py_ssize_t kind = kind_at(g, at, &start);
    if (kind < 0) return 0;
    const uint8_t *from = g->file + start;
    for (Py_ssize_t field = 0; field < g->fields; field++) {
        const Column *column = &g->columns[field];
        int64_t size = g->sizes[field];
        uint8_t *into = column->rows + row * size;
        int64_t place = g->places[kind * g->fields + field];
        int64_t length = g->lengths[kind * g->fields + field];
        if (place < 0) {
            if (column->default_row == NULL) return 0;
            memcpy(into, column->default_row, (size_t)size);
            continue;
        }
        if (length < 0 || place + length > g->file_bytes - start) return 0;
        if (g->varints[field]) {
            const uint8_t *first = from + place;
            if (!read_varints(first, first + length, g->varints[field], into)) return 0;
        } else if (length == size)
            memcpy(into, from + place, (size_t)size);
        else
            return 0;
    }
    return 1;
}

static int read_records(Gather *g) {
    int all = 1;
    for (Py_ssize_t at = 0; at < g->count && at < 2 * ROWS_AHEAD; at++) ask_where(g, at);
    for (Py_ssize_t at = 0; at < g->count && at < ROWS_AHEAD; at++) ask_for(g, at);
    for (Py_ssize_t at = 0; at < g->count; at++) {
        if (at + 2 * ROWS_AHEAD < g->count) ask_where(g, at + 2 * ROWS_AHEAD);
        if (at + ROWS_AHEAD < g->count) ask_for(g, at + ROWS_AHEAD);
        g->wrong[at] = (char)!read_record(g, at);
        all &= !g->wrong[at];
    }
    return all;
}

/* --- arguments --- */

enum { FILE_, NUMBERS, ROWS, STARTS, KINDS, PLACES, LENGTHS, SIZES, VARINTS, VIEWS };
enum { COLUMNS = VIEWS, DEFAULTS, ARGUMENTS };

static int open_view(PyObject *object, Py_buffer *view, Py_ssize_t item, const char *name) {
    view->buf = NULL;
    if (object == Py_None) return 0;
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS) < 0) return -1;
    if (view->len % item == 0 && (uintptr_t)view->buf % (uintptr_t)item == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s must have items of %zd bytes", name, item);
    PyBuffer_Release(view);
    view->buf = NULL;
    return -1;
}

static int check(const Gather *g, const Py_buffer *views, const Py_buffer *rows) {
    const char *wrong = NULL;
    Py_ssize_t both = (Py_ssize_t)sizeof(int32_t) * g->fields;
    int64_t available = INT64_MAX, bytes = 0;
    if (views[FILE_].buf == NULL && views[FILE_].len) wrong = "file";
    if (both == 0 || views[PLACES].len % both || views[PLACES].len != views[LENGTHS].len)
        wrong = "places and lengths";
    if (g->rows != NULL && views[ROWS].len / 8 != g->count) wrong = "rows";
    if (g->kind_of != NULL && views[KINDS].len / 2 != g->records) wrong = "kinds";
    if (views[SIZES].len / 8 != g->fields || views[VARINTS].len / 8 != g->fields) wrong = "sizes";
    for (Py_ssize_t field = 0; field < g->fields && wrong == NULL; field++) {
        int64_t size = g->sizes[field], varints = g->varints[field];
        if (size < 1 || varints < 0 || varints > size || (varints && (size % 8 || size / 8 != varints))) {
            wrong = "sizes";
            break;
        }
        if (rows[field].len / size < available) available = rows[field].len / size;
        bytes += size;
    }
    if (wrong == NULL && g->rows == NULL && g->count > available) wrong = "columns";
    for (Py_ssize_t i = 0; i < g->count && wrong == NULL && g->rows != NULL; i++)
        if (g->rows[i] < 0 || g->rows[i] >= available) wrong = "rows";
    if (wrong != NULL) PyErr_Format(PyExc_ValueError, "%s don't fit the other arguments", wrong);
    return wrong != NULL ? -1 : bytes * g->count > MUCH_BYTES;
}

PyObject *kernel_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    static const Py_ssize_t items[VIEWS] = {1, 8, 8, 8, 2, 4, 4, 8, 8};
    static const char *names[VIEWS] = {"file",   "numbers", "rows",  "starts", "kinds",
                                       "places", "lengths", "sizes", "varints"};
    if (given != ARGUMENTS || !PyTuple_Check(arguments[COLUMNS]) ||
        !PyTuple_Check(arguments[DEFAULTS])) {
        PyErr_SetString(PyExc_TypeError, "gather asks for 11 arguments, the last two tuples");
        return NULL;
    }
    PyObject *columns = arguments[COLUMNS], *defaults = arguments[DEFAULTS], *result = NULL;
    Py_buffer views[VIEWS] = {{0}};
    Py_ssize_t fields = PyTuple_Size(columns), opened = 0;
    if (fields < 1 || fields > MOST_FIELDS || PyTuple_Size(defaults) != fields) {
        PyErr_SetString(PyExc_ValueError, "columns and defaults must be as many");
        return NULL;
    }
    Py_buffer *rows = calloc((size_t)fields, sizeof *rows);
    Gather g = {.fields = fields, .columns = calloc((size_t)fields, sizeof *g.columns)};
    if (rows == NULL || g.columns == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (int i = 0; i < VIEWS; i++) {
        if (arguments[i] == Py_None && i != ROWS && i != KINDS) {
            PyErr_Format(PyExc_TypeError, "%s must not be None", names[i]);
            goto end;
        }
        if (open_view(arguments[i], &views[i], items[i], names[i]) < 0) goto end;
    }
    for (; opened < fields; opened++) {
        PyObject *column = PyTuple_GetItem(columns, opened);
        if (PyObject_GetBuffer(column, &rows[opened], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
            goto end;
        g.columns[opened].rows = rows[opened].buf;
    }
    g.file = views[FILE_].buf, g.file_bytes = views[FILE_].len;
    g.count = views[NUMBERS].len / 8, g.numbers = views[NUMBERS].buf;
    g.rows = views[ROWS].buf, g.starts = views[STARTS].buf, g.kind_of = views[KINDS].buf;
    g.records = views[STARTS].len / 8;
    g.places = views[PLACES].buf, g.lengths = views[LENGTHS].buf;
    g.kinds = views[PLACES].len / ((Py_ssize_t)sizeof(int32_t) * fields);
    g.sizes = views[SIZES].buf, g.varints = views[VARINTS].buf;
    int is_much = check(&g, views, rows);
    if (is_much < 0) goto end;
    for (Py_ssize_t field = 0; field < fields; field++) {
        PyObject *row = PyTuple_GetItem(defaults, field);
        if (row == Py_None) continue;
        if (!PyBytes_Check(row) || PyBytes_Size(row) != g.sizes[field]) {
            PyErr_SetString(PyExc_ValueError, "defaults must be None, or the bytes of a row");
            goto end;
        }
        g.columns[field].default_row = (const uint8_t *)PyBytes_AsString(row);
    }
    g.wrong = malloc((size_t)g.count + 1);
    if (g.wrong == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    int all;
    if (is_much) {
        Py_BEGIN_ALLOW_THREADS
        all = read_records(&g);
        Py_END_ALLOW_THREADS
    } else
        all = read_records(&g);
    result = all ? Py_BuildValue("") : PyBytes_FromStringAndSize(g.wrong, g.count);
end:
    while (opened > 0) PyBuffer_Release(&rows[--opened]);
    for (int i = 0; i < VIEWS; i++)
        if (views[i].obj != NULL) PyBuffer_Release(&views[i]);
    free(g.wrong);
    free(g.columns);
    free(rows);
    return result;
}
