/* Features of records into the columns of a batch. */
#include "functions.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "records.h"

enum {
    MOST_FIELDS = 1 << 16,
    /* Below it, the GIL is kept: who gives it away may wait long to have it back. Above, the disk
       may be waited for, and others read on meanwhile. */
    MUCH_BYTES = 1 << 14,
    LINE_BYTES = 64,
    /* Records ahead that memory is asked for, which is what a shuffled gather waits for; into the L2
       cache, as L1's would wait for it: 4.8 us for 64 rows of 784 bytes; 10.7 without, 5.6 with 4,
       4.6 with 16, 8.1 into L1 (one core). */
    ROWS_AHEAD = 8,
    INTO_L2 = 2,
    MOST_ASKED_BYTES = 2048,
};

/* --- the fields that are wanted --- */

static const char SCHEMA[] = "adapters.schema";

typedef struct {
    Schema schema;
    PyObject *given; /* A tuple that holds the names, prefixes and default rows. */
} HeldSchema;

static void free_schema(HeldSchema *held) {
    free(held->schema.fields);
    free(held->schema.slots);
    Py_XDECREF(held->given);
    free(held);
}

static void schema_is_gone(PyObject *capsule) {
    free_schema(PyCapsule_GetPointer(capsule, SCHEMA));
}

/* (name, list, part, is_place, count, prefix, default row or None) */
static int read_spec(PyObject *given, Field *field) {
    int list, part;
    long long count;
    const char *name, *prefix, *row = NULL;
    Py_ssize_t name_size, prefix_size, row_size = 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a field must be a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "y#iipLy#z#:field", &name, &name_size, &list, &part,
                          &field->is_place, &count, &prefix, &prefix_size, &row, &row_size))
        return 0;
    field->name = (Text){(const uint8_t *)name, (size_t)name_size};
    field->prefix = (Text){(const uint8_t *)prefix, (size_t)prefix_size};
    field->list = (List)list, field->part = (Part)part, field->count = count;
    field->default_row = (const uint8_t *)row;
    int is_right = list >= BYTES_LIST && list <= INT64_LIST && part >= CONTENT && part <= ID2;
    is_right &= count >= 1 && count <= INT32_MAX && (list == BYTES_LIST || prefix_size == 0);
    is_right &= !field->is_place || (list == BYTES_LIST && prefix_size == 0);
    field->row_bytes = is_right ? field_bytes(field) : 0;
    if (is_right && (row == NULL || row_size == field->row_bytes)) return 1;
    PyErr_SetString(PyExc_ValueError, "a field's numbers don't fit each other");
    return 0;
}

PyObject *kernel_schema(PyObject *self, PyObject *fields) {
    (void)self;
    PyObject *given = PySequence_Tuple(fields), *capsule = NULL;
    if (given == NULL) return NULL;
    Py_ssize_t count = PyTuple_Size(given);
    HeldSchema *held = calloc(1, sizeof *held);
    if (held == NULL || count < 1 || count > MOST_FIELDS) {
        Py_DECREF(given);
        if (held == NULL) return PyErr_NoMemory();
        free(held);
        return PyErr_Format(PyExc_ValueError, "there must be 1 to %d fields", MOST_FIELDS);
    }
    Schema *schema = &held->schema;
    held->given = given, schema->count = count, schema->mask = 1;
    while (schema->mask < 2 * (size_t)count) schema->mask = 2 * schema->mask + 1;
    schema->fields = calloc((size_t)count, sizeof *schema->fields);
    schema->slots = malloc((schema->mask + 1) * sizeof *schema->slots);
    if (schema->fields == NULL || schema->slots == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    memset(schema->slots, -1, (schema->mask + 1) * sizeof *schema->slots);
    for (Py_ssize_t n = 0; n < count; n++)
        if (!read_spec(PyTuple_GetItem(given, n), &schema->fields[n])) goto end;
    schema_enter(schema);
    capsule = PyCapsule_New(held, SCHEMA, schema_is_gone);
end:
    if (capsule == NULL) free_schema(held);
    return capsule;
}

/* --- the files --- */

static const char FILES[] = "adapters.files";

/* What a file lends: its bytes, offsets, sizes and marks of checked records. */
typedef struct {
    Py_buffer bytes, offsets, sizes, checked;
} Views;

typedef struct {
    File *files;
    int64_t *firsts; /* (count + 1): how many records lie in the files before. */
    Views *views;
    Py_ssize_t count;
    PyObject *given; /* A tuple that holds the paths. */
} HeldFiles;

static void free_files(HeldFiles *held) {
    for (Py_ssize_t n = 0; held->views != NULL && n < held->count; n++) {
        Views *views = &held->views[n];
        PyBuffer_Release(&views->bytes);
        PyBuffer_Release(&views->offsets);
        PyBuffer_Release(&views->sizes);
        PyBuffer_Release(&views->checked);
    }
    Py_XDECREF(held->given);
    free(held->views);
    free(held->files);
    free(held->firsts);
    free(held);
}

static void files_are_gone(PyObject *capsule) {
    free_files(PyCapsule_GetPointer(capsule, FILES));
}

/* Whether int64 may be read; nothing is read of an empty array, which may begin anywhere. */
static int is_aligned(const Py_buffer *view) {
    return view->len == 0 || (uintptr_t)view->buf % 8 == 0;
}

/* (buffer or None, offsets, sizes or None, checked, kind, path or nothing, inode) */
static int open_file(PyObject *given, Views *views, File *file) {
    int kind;
    const char *path;
    unsigned long long inode;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a file must be a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "z*y*z*w*iyK:files", &views->bytes, &views->offsets, &views->sizes,
                          &views->checked, &kind, &path, &inode))
        return 0;
    int64_t records = views->offsets.len / 8;
    int is_right = views->offsets.len % 8 == 0 && views->checked.len == records;
    is_right &= views->sizes.obj == NULL || views->sizes.len == views->offsets.len;
    is_right &= is_aligned(&views->offsets) && is_aligned(&views->sizes);
    if (!is_right || kind < 0 || kind > RECORDIO_IRHEADER) {
        PyErr_SetString(PyExc_ValueError, "offsets, sizes, checked and kind must fit each other");
        return 0;
    }
    *file = (File){
        .bytes = views->bytes.buf,
        .size = (size_t)views->bytes.len,
        .records = records,
        .offsets = views->offsets.buf,
        .sizes = views->sizes.buf,
        .checked = views->checked.buf,
        .kind = (Kind)kind,
        .path = *path ? path : NULL,
        .inode = inode,
    };
    return 1;
}

PyObject *kernel_files(PyObject *self, PyObject *files) {
    (void)self;
    PyObject *given = PySequence_Tuple(files), *capsule = NULL;
    if (given == NULL) return NULL;
    size_t count = (size_t)PyTuple_Size(given);
    HeldFiles *held = calloc(1, sizeof *held);
    if (held == NULL) {
        Py_DECREF(given);
        return PyErr_NoMemory();
    }
    held->count = (Py_ssize_t)count, held->given = given;
    held->files = calloc(count + 1, sizeof *held->files);
    held->firsts = calloc(count + 1, sizeof *held->firsts);
    held->views = calloc(count + 1, sizeof *held->views);
    if (held->files == NULL || held->firsts == NULL || held->views == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (size_t n = 0; n < count; n++) {
        File *file = &held->files[n];
        if (!open_file(PyTuple_GetItem(given, (Py_ssize_t)n), &held->views[n], file)) goto end;
        held->firsts[n + 1] = held->firsts[n] + file->records;
    }
    capsule = PyCapsule_New(held, FILES, files_are_gone);
end:
    if (capsule == NULL) free_files(held);
    return capsule;
}

/* --- records into rows --- */

typedef struct {
    const Schema *schema;
    Record *records;
    Py_ssize_t count;
    uint8_t **columns;
    Scratch scratch;
    char *wrong;  /* (count) */
    char *states; /* (files): what is known of each since the call began. */
} Gather;

enum { UNKNOWN, WHOLE, TRUNCATED };

/* Whether a file was truncated since it was mapped: to read its map would end the process. A file
 * that was removed or replaced stays whole in its map. */
static int is_truncated(const File *file) {
    struct stat found;
    return file->path != NULL && stat(file->path, &found) == 0 && found.st_ino == file->inode &&
           (uint64_t)found.st_size < file->size;
}

/* Copy where the records lie: first all of it is asked for, as it is scattered over memory. */
static void find_records(Gather *g) {
#ifdef __GNUC__
    for (Py_ssize_t at = 0; at < g->count; at++) {
        const Record *record = &g->records[at];
        __builtin_prefetch(&record->file->offsets[record->number]);
        if (record->file->sizes != NULL) __builtin_prefetch(&record->file->sizes[record->number]);
        __builtin_prefetch(&record->file->checked[record->number]);
    }
#endif
    for (Py_ssize_t at = 0; at < g->count; at++) {
        Record *record = &g->records[at];
        const File *file = record->file;
        record->offset = file->offsets[record->number];
        record->size = file->sizes == NULL ? 0 : file->sizes[record->number];
        record->is_checked = file->checked[record->number];
    }
}

/* Ask for a record, or for its first part. */
static void ask_for(const Record *record) {
#ifdef __GNUC__
    int64_t size = record->file->sizes == NULL ? MOST_ASKED_BYTES : record->size;
    if (size > MOST_ASKED_BYTES) size = MOST_ASKED_BYTES;
    uintptr_t first = (uintptr_t)record->file->bytes + (uint64_t)record->offset;
    uintptr_t last = first + (uint64_t)size;
    for (uintptr_t line = first & -(uintptr_t)LINE_BYTES; line < last; line += LINE_BYTES)
        __builtin_prefetch((const void *)line, 0, INTO_L2);
#endif
}

static int read_records(Gather *g) {
    int all = 1;
    find_records(g);
    for (Py_ssize_t at = 0; at < g->count && at < ROWS_AHEAD; at++) ask_for(&g->records[at]);
    for (Py_ssize_t at = 0; at < g->count; at++) {
        if (at + ROWS_AHEAD < g->count) ask_for(&g->records[at + ROWS_AHEAD]);
        Record *record = &g->records[at];
        char *state = &g->states[record->file_number];
        if (*state == UNKNOWN) *state = is_truncated(record->file) ? TRUNCATED : WHOLE;
        g->wrong[at] = *state == TRUNCATED ||
                       !record_parse(g->schema, record, g->columns, &g->scratch);
        all &= !g->wrong[at];
    }
    return all;
}

/* Copy which records are wanted, and into which of the rows that there are. */
static int list_records(Gather *g, const HeldFiles *held, const Py_buffer *numbers,
                        const Py_buffer *rows, int64_t available) {
    const int64_t *wanted = numbers->buf, *into = rows->buf;
    for (Py_ssize_t n = 0; n < g->count; n++) {
        int64_t number = wanted[n], row = into == NULL ? n : into[n];
        if (number < 0 || number >= held->firsts[held->count] || row < 0 || row >= available) {
            PyErr_SetString(PyExc_ValueError, "numbers and rows must be of files and columns");
            return 0;
        }
        Py_ssize_t low = 0, high = held->count; /* firsts[low] <= number < firsts[high] */
        while (high - low > 1) {
            Py_ssize_t middle = low + (high - low) / 2;
            if (held->firsts[middle] <= number)
                low = middle;
            else
                high = middle;
        }
        Record *record = &g->records[n];
        record->file = &held->files[low], record->file_number = low;
        record->number = number - held->firsts[low], record->row = row;
    }
    return 1;
}

static int open_numbers(PyObject *object, Py_buffer *view) {
    if (object == Py_None) return 1;
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS) < 0) return 0;
    if (view->len % 8 == 0 && is_aligned(view)) return 1;
    PyErr_SetString(PyExc_ValueError, "numbers and rows must be int64");
    return 0;
}

enum { SCHEMA_, FILES_, NUMBERS, ROWS, COLUMNS, ARGUMENTS };

PyObject *kernel_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (given != ARGUMENTS || !PyTuple_Check(arguments[COLUMNS]) || arguments[NUMBERS] == Py_None) {
        PyErr_SetString(PyExc_TypeError, "gather asks for 5 arguments, the last one a tuple");
        return NULL;
    }
    HeldSchema *held = PyCapsule_GetPointer(arguments[SCHEMA_], SCHEMA);
    HeldFiles *files = held == NULL ? NULL : PyCapsule_GetPointer(arguments[FILES_], FILES);
    if (files == NULL) return NULL;
    const Schema *schema = &held->schema;
    size_t fields = (size_t)schema->count;
    PyObject *columns = arguments[COLUMNS], *result = NULL;
    if (PyTuple_Size(columns) != schema->count) {
        PyErr_SetString(PyExc_ValueError, "there must be a column for each field");
        return NULL;
    }
    Py_buffer numbers = {0}, rows = {0};
    Py_buffer *views = calloc(fields, sizeof *views);
    Gather g = {.schema = schema};
    g.columns = calloc(fields, sizeof *g.columns);
    g.scratch.marks = calloc(fields, sizeof *g.scratch.marks);
    if (views == NULL || g.columns == NULL || g.scratch.marks == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if (!open_numbers(arguments[NUMBERS], &numbers) || !open_numbers(arguments[ROWS], &rows)) goto end;
    int64_t available = INT64_MAX, bytes = 0;
    for (size_t n = 0; n < fields; n++) {
        PyObject *column = PyTuple_GetItem(columns, (Py_ssize_t)n);
        if (PyObject_GetBuffer(column, &views[n], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) goto end;
        int64_t size = schema->fields[n].row_bytes;
        g.columns[n] = views[n].buf;
        if (views[n].len / size < available) available = views[n].len / size;
        bytes += schema->fields[n].is_place ? MUCH_BYTES : size;
    }
    g.count = numbers.len / 8;
    if (rows.obj != NULL && rows.len != numbers.len) {
        PyErr_SetString(PyExc_ValueError, "rows must be as many as numbers");
        goto end;
    }
    g.records = malloc(((size_t)g.count + 1) * sizeof *g.records);
    g.wrong = malloc((size_t)g.count + 1);
    g.states = calloc((size_t)files->count + 1, 1);
    if (g.records == NULL || g.wrong == NULL || g.states == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if (!list_records(&g, files, &numbers, &rows, available)) goto end;
    PyThreadState *released = g.count > MUCH_BYTES / bytes ? PyEval_SaveThread() : NULL;
    int all = read_records(&g);
    if (released) PyEval_RestoreThread(released);
    result = all ? Py_BuildValue("") : PyBytes_FromStringAndSize(g.wrong, g.count);
end:
    for (size_t n = 0; views != NULL && n < fields; n++)
        if (views[n].obj != NULL) PyBuffer_Release(&views[n]);
    if (numbers.obj != NULL) PyBuffer_Release(&numbers);
    if (rows.obj != NULL) PyBuffer_Release(&rows);
    free(views);
    free(g.columns);
    free(g.scratch.marks);
    free(g.records);
    free(g.wrong);
    free(g.states);
    return result;
}
