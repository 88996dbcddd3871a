/* The arguments of the kernel's functions: memory that Python's objects lend. */
#ifndef ADAPTERS_IMAGES_ARGUMENTS_H
#define ADAPTERS_IMAGES_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* An argument's memory, contiguous; NULL, with an exception, where it isn't as large as said. */
void *memory_of(PyObject *object, Py_buffer *view, int flags, size_t bytes, const char *name);

/* An argument that lends memory: the four that memory_of takes, and what it gives. */
typedef struct {
    PyObject *object;
    int flags;
    size_t bytes;
    const char *name;
    void *memory;
    Py_buffer view;
} Loan;

/* Hold the memory of all of them, or of none; 0, with an exception, where one isn't as large as said. */
int loans_open(Loan *loans, int count);
void loans_close(Loan *loans, int count);

/* A copy of an argument's memory, which others may change while the GIL isn't held; NULL, with an
 * exception. */
void *array_of(PyObject *object, size_t bytes, const char *name);

/* Buffers that are held, so that their memory stays where it is. */
typedef struct {
    Py_buffer *views;
    size_t opened;
} Views;

/* Hold all buffers of a tuple; one that isn't contiguous is as if it were empty. 0, with an
 * exception, where there is no memory. */
int views_open(Views *views, PyObject *tuple);
void views_close(Views *views);

#endif
