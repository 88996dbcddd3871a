/* RGB pictures of floats through a matrix each, where they lie, and the sums of their channels.

The values are NumPy's to the bit, but for the sign of what is no number: each step is one of its
calls, in its order, and nothing is contracted. In loops that the compiler makes vectors of. */
#include "tints.h"

#include "arguments.h"
#include "vectors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, BLOCK = 512 };

typedef struct {
    float matrix[CHANNELS][CHANNELS];
    float offset, low, high;
} Tint;

INLINE void compute(const float *restrict red, const float *restrict green,
                    const float *restrict blue, float *restrict out, Py_ssize_t count,
                    const Tint *tint, int channel) {
    const float by_red = tint->matrix[channel][0], by_green = tint->matrix[channel][1],
                by_blue = tint->matrix[channel][2], offset = tint->offset, low = tint->low,
                high = tint->high;
    for (Py_ssize_t i = 0; i < count; i++) {
        float value = by_red * red[i] + by_green * green[i] + by_blue * blue[i] + offset;
        value = value <= low ? low : value; /* As NumPy does: what is no number stays so. */
        out[i] = value >= high ? high : value;
    }
}

INLINE void recolour(float *image, Py_ssize_t pixels, int channels_first, const Tint *tint) {
    float given[CHANNELS][BLOCK], made[CHANNELS][BLOCK];
    Py_ssize_t step = channels_first ? 1 : CHANNELS, apart = channels_first ? pixels : 1;
    for (Py_ssize_t start = 0; start < pixels; start += BLOCK) {
        float *at = image + step * start;
        Py_ssize_t size = pixels - start < BLOCK ? pixels - start : BLOCK;
        for (int channel = 0; channel < CHANNELS; channel++)
            for (Py_ssize_t i = 0; i < size; i++)
                given[channel][i] = at[channel * apart + step * i];
        for (int channel = 0; channel < CHANNELS; channel++)
            compute(given[0], given[1], given[2], made[channel], size, tint, channel);
        for (int channel = 0; channel < CHANNELS; channel++)
            for (Py_ssize_t i = 0; i < size; i++)
                at[channel * apart + step * i] = made[channel][i];
    }
}

/* Row upon row, and then along the row that these have made. */
INLINE void add_up(const float *image, Py_ssize_t rows, Py_ssize_t width, Py_ssize_t channels,
                   double *restrict row, double *sums) {
    Py_ssize_t size = width * channels;
    for (Py_ssize_t i = 0; i < size; i++) row[i] = 0.0;
    for (Py_ssize_t y = 0; y < rows; y++, image += size)
        for (Py_ssize_t i = 0; i < size; i++) row[i] += image[i];
    for (Py_ssize_t channel = 0; channel < channels; channel++) {
        double sum = row[channel];
        for (Py_ssize_t x = 1; x < width; x++) sum += row[channels * x + channel];
        sums[channel] = sum;
    }
}

INLINE void recolour_one(float *image, Py_ssize_t pixels, int channels_first, const Tint *tint) {
    if (channels_first)
        recolour(image, pixels, 1, tint);
    else
        recolour(image, pixels, 0, tint);
}

static void recolour_plain(float *image, Py_ssize_t pixels, int first, const Tint *tint) {
    recolour_one(image, pixels, first, tint);
}

static void add_up_plain(const float *image, Py_ssize_t rows, Py_ssize_t width,
                         Py_ssize_t channels, double *row, double *sums) {
    add_up(image, rows, width, channels, row, sums);
}

#ifdef HAVE_X86
AVX2 static void recolour_avx2(float *image, Py_ssize_t pixels, int first, const Tint *tint) {
    recolour_one(image, pixels, first, tint);
}

AVX2 static void add_up_avx2(const float *image, Py_ssize_t rows, Py_ssize_t width,
                             Py_ssize_t channels, double *row, double *sums) {
    add_up(image, rows, width, channels, row, sums);
}
#endif

static inline int has_avx2(void) {
#ifdef HAVE_X86
    __builtin_cpu_init();
    return SUPPORTS("avx2") != 0;
#else
    return 0;
#endif
}

/* The bytes of count images of so many pixels; 0, with an exception, where there is no such size. */
static size_t bytes_of(Py_ssize_t count, Py_ssize_t height, Py_ssize_t width) {
    const Py_ssize_t most = PY_SSIZE_T_MAX / CHANNELS / (Py_ssize_t)sizeof(double);
    if (count >= 1 && height >= 1 && width >= 1 && height <= most / width &&
        count <= most / width / height)
        return (size_t)(count * height * width) * CHANNELS * sizeof(float);
    PyErr_SetString(PyExc_ValueError, "count, height and width must be >= 1, and of some memory");
    return 0;
}

PyObject *kernel_recolour_floats(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *object, *matrices_object, *offsets_object;
    Py_ssize_t count, height, width;
    int first;
    float low, high;
    Py_buffer images, matrices, offsets;
    if (!PyArg_ParseTuple(arguments, "OnnnpOOff:recolour_floats", &object, &count, &height, &width,
                          &first, &matrices_object, &offsets_object, &low, &high))
        return NULL;
    size_t bytes = bytes_of(count, height, width), each = sizeof(float) * CHANNELS * CHANNELS;
    if (bytes == 0) return NULL;
    float *pixels = memory_of(object, &images, PyBUF_WRITABLE, bytes, "images");
    if (pixels == NULL) return NULL;
    const char *factors = memory_of(matrices_object, &matrices, PyBUF_SIMPLE,
                                    (size_t)count * each, "matrices");
    if (factors == NULL) {
        PyBuffer_Release(&images);
        return NULL;
    }
    const char *added = memory_of(offsets_object, &offsets, PyBUF_SIMPLE,
                                  (size_t)count * sizeof(float), "offsets");
    if (added == NULL) {
        PyBuffer_Release(&matrices);
        PyBuffer_Release(&images);
        return NULL;
    }
    void (*run)(float *, Py_ssize_t, int, const Tint *) = recolour_plain;
#ifdef HAVE_X86
    if (has_avx2()) run = recolour_avx2;
#endif
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        Tint tint = {.low = low, .high = high};
        memcpy(tint.matrix, factors + (size_t)i * each, each);
        memcpy(&tint.offset, added + (size_t)i * sizeof(float), sizeof(float));
        run(pixels + i * height * width * CHANNELS, height * width, first, &tint);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&matrices);
    PyBuffer_Release(&images);
    return Py_BuildValue("");
}

PyObject *kernel_channel_sums_floats(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *object, *sums_object;
    Py_ssize_t count, height, width;
    int first;
    Py_buffer images, sums;
    if (!PyArg_ParseTuple(arguments, "OnnnpO:channel_sums_floats", &object, &count, &height, &width,
                          &first, &sums_object))
        return NULL;
    size_t bytes = bytes_of(count, height, width);
    if (bytes == 0) return NULL;
    const float *pixels = memory_of(object, &images, PyBUF_SIMPLE, bytes, "images");
    if (pixels == NULL) return NULL;
    double *out = memory_of(sums_object, &sums, PyBUF_WRITABLE,
                            (size_t)count * CHANNELS * sizeof(double), "sums");
    if (out == NULL) {
        PyBuffer_Release(&images);
        return NULL;
    }
    double *row = malloc((size_t)width * CHANNELS * sizeof(double));
    void (*run)(const float *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *, double *) =
        add_up_plain;
#ifdef HAVE_X86
    if (has_avx2()) run = add_up_avx2;
#endif
    if (row != NULL) {
        Py_ssize_t planes = first ? CHANNELS : 1, channels = CHANNELS / planes;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count * planes; i++)
            run(pixels + i * height * width * channels, height, width, channels, row,
                out + i * channels);
        Py_END_ALLOW_THREADS
    } else
        PyErr_NoMemory();
    free(row);
    PyBuffer_Release(&sums);
    PyBuffer_Release(&images);
    return PyErr_Occurred() ? NULL : Py_BuildValue("");
}
