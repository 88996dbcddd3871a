#include "arguments.h"

#include <stdlib.h>
#include <string.h>

void *memory_of(PyObject *object, Py_buffer *view, int flags, size_t bytes, const char *name) {
    if (PyObject_GetBuffer(object, view, flags | PyBUF_C_CONTIGUOUS) < 0) return NULL;
    if ((size_t)view->len == bytes) return view->buf;
    PyErr_Format(PyExc_ValueError, "%s must be %zu bytes, got %zd", name, bytes, view->len);
    PyBuffer_Release(view);
    return NULL;
}

int loans_open(Loan *loans, int count) {
    for (int i = 0; i < count; i++) {
        Loan *loan = &loans[i];
        loan->memory = memory_of(loan->object, &loan->view, loan->flags, loan->bytes, loan->name);
        if (loan->memory != NULL) continue;
        loans_close(loans, i);
        return 0;
    }
    return 1;
}

void loans_close(Loan *loans, int count) {
    while (count > 0) PyBuffer_Release(&loans[--count].view);
}

void *array_of(PyObject *object, size_t bytes, const char *name) {
    Py_buffer view;
    const void *given = memory_of(object, &view, 0, bytes, name);
    if (given == NULL) return NULL;
    void *copy = malloc(bytes + 1);
    if (copy != NULL) memcpy(copy, given, bytes);
    PyBuffer_Release(&view);
    return copy == NULL ? PyErr_NoMemory() : copy;
}

int views_open(Views *views, PyObject *tuple) {
    size_t count = (size_t)PyTuple_Size(tuple);
    views->views = calloc(count + 1, sizeof *views->views);
    if (views->views == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; views->opened < count; views->opened++) {
        PyObject *buffer = PyTuple_GetItem(tuple, (Py_ssize_t)views->opened);
        Py_buffer *view = &views->views[views->opened];
        if (PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE) == 0) continue;
        PyErr_Clear(); /* Another decoder will say what it is. */
        memset(view, 0, sizeof *view);
    }
    return 1;
}

void views_close(Views *views) {
    while (views->opened > 0) PyBuffer_Release(&views->views[--views->opened]);
    free(views->views);
    views->views = NULL;
}
