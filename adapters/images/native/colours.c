/* RGB images through a matrix each, where they lie, and the sums of their channels; and images of
any kind mixed with each other.

Blocks of pixels are taken apart into channels, computed, and put together again, in loops that the
compiler makes vectors of. uint8 is computed in whole numbers: 25 us for 224 x 224 pixels with AVX-512
VBMI, 42 with AVX2, 190 without (one core). Who calls sees to it that no sum leaves 32 bits. The values
of floats are NumPy's to the bit, but for the sign of what is no number: each step is one of its calls,
in its order, and nothing is contracted. */
#include "functions.h"

#include "arguments.h"
#include "vectors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, BLOCK = 1024, FLOAT_BLOCK = 512, WHOLE = 256 };

/* What becomes of an image's pixels. Both begin with a matrix and an offset, of four bytes each. */
typedef struct {
    int32_t matrix[CHANNELS][CHANNELS];
    int32_t offset, low, high;
    int bits;
} Colour;

typedef struct {
    float matrix[CHANNELS][CHANNELS];
    float offset, low, high;
} Tint;

enum { MATRIX_BYTES = 4 * CHANNELS * CHANNELS, OFFSET_BYTES = 4 };

typedef struct {
    Py_ssize_t count, height, width;
    int channels_first;
} Shape;

/* --- uint8 --- */

INLINE void compute(const uint8_t *restrict red, const uint8_t *restrict green,
                    const uint8_t *restrict blue, uint8_t *restrict out, Py_ssize_t count,
                    const Colour *colour, int channel) {
    const int32_t by_red = colour->matrix[channel][0], by_green = colour->matrix[channel][1],
                  by_blue = colour->matrix[channel][2], offset = colour->offset,
                  low = colour->low, high = colour->high;
    const int bits = colour->bits;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t value = by_red * red[i] + by_green * green[i] + by_blue * blue[i] + offset;
        value >>= bits; /* Of negative ones, too, downwards: GCC and Clang both say so. */
        value = value < low ? low : value;
        out[i] = (uint8_t)(value > high ? high : value);
    }
}

INLINE void interleaved(uint8_t *pixels, Py_ssize_t count, const Colour *colour) {
    uint8_t given[CHANNELS][BLOCK], made[CHANNELS][BLOCK];
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        uint8_t *at = pixels + CHANNELS * start;
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        for (Py_ssize_t i = 0; i < size; i++) {
            given[0][i] = at[CHANNELS * i];
            given[1][i] = at[CHANNELS * i + 1];
            given[2][i] = at[CHANNELS * i + 2];
        }
        for (int channel = 0; channel < CHANNELS; channel++)
            compute(given[0], given[1], given[2], made[channel], size, colour, channel);
        for (Py_ssize_t i = 0; i < size; i++) {
            at[CHANNELS * i] = made[0][i];
            at[CHANNELS * i + 1] = made[1][i];
            at[CHANNELS * i + 2] = made[2][i];
        }
    }
}

INLINE void planar(uint8_t *planes, Py_ssize_t count, const Colour *colour) {
    uint8_t given[CHANNELS][BLOCK];
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        for (int channel = 0; channel < CHANNELS; channel++)
            memcpy(given[channel], planes + channel * count + start, (size_t)size);
        for (int channel = 0; channel < CHANNELS; channel++)
            compute(given[0], given[1], given[2], planes + channel * count + start, size, colour,
                    channel);
    }
}

INLINE void recolour(uint8_t *image, Py_ssize_t count, int channels_first, const Colour *colour) {
    if (channels_first)
        planar(image, count, colour);
    else
        interleaved(image, count, colour);
}

INLINE void add_up(const uint8_t *image, Py_ssize_t count, int channels_first, int64_t *sums) {
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        uint32_t red = 0, green = 0, blue = 0;
        if (channels_first) {
            for (Py_ssize_t i = start; i < start + size; i++) red += image[i];
            for (Py_ssize_t i = start; i < start + size; i++) green += image[count + i];
            for (Py_ssize_t i = start; i < start + size; i++) blue += image[2 * count + i];
        } else {
            const uint8_t *at = image + CHANNELS * start;
            for (Py_ssize_t i = 0; i < size; i++) {
                red += at[CHANNELS * i];
                green += at[CHANNELS * i + 1];
                blue += at[CHANNELS * i + 2];
            }
        }
        sums[0] += red;
        sums[1] += green;
        sums[2] += blue;
    }
}

/* Each byte becomes its share of itself, and the rest of the other one. */
INLINE void blend(uint8_t *restrict one, const uint8_t *restrict other, Py_ssize_t count,
                  int share) {
    const uint16_t own = (uint16_t)share, rest = (uint16_t)(WHOLE - share);
    for (Py_ssize_t i = 0; i < count; i++) {
        uint16_t sum = (uint16_t)((uint16_t)(one[i] * own) + (uint16_t)(other[i] * rest));
        one[i] = (uint8_t)((uint16_t)(sum + WHOLE / 2) >> 8);
    }
}

/* --- floats --- */

INLINE void compute_floats(const float *restrict red, const float *restrict green,
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

INLINE void recolour_floats(float *image, Py_ssize_t pixels, int channels_first, const Tint *tint) {
    float given[CHANNELS][FLOAT_BLOCK], made[CHANNELS][FLOAT_BLOCK];
    Py_ssize_t step = channels_first ? 1 : CHANNELS, apart = channels_first ? pixels : 1;
    for (Py_ssize_t start = 0; start < pixels; start += FLOAT_BLOCK) {
        float *at = image + step * start;
        Py_ssize_t size = pixels - start < FLOAT_BLOCK ? pixels - start : FLOAT_BLOCK;
        for (int channel = 0; channel < CHANNELS; channel++)
            for (Py_ssize_t i = 0; i < size; i++)
                given[channel][i] = at[channel * apart + step * i];
        for (int channel = 0; channel < CHANNELS; channel++)
            compute_floats(given[0], given[1], given[2], made[channel], size, tint, channel);
        for (int channel = 0; channel < CHANNELS; channel++)
            for (Py_ssize_t i = 0; i < size; i++)
                at[channel * apart + step * i] = made[channel][i];
    }
}

/* Row upon row, and then along the row that these have made. */
INLINE void add_up_floats(const float *image, Py_ssize_t rows, Py_ssize_t width, Py_ssize_t channels,
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

INLINE void recolour_each(float *image, Py_ssize_t pixels, int channels_first, const Tint *tint) {
    if (channels_first)
        recolour_floats(image, pixels, 1, tint);
    else
        recolour_floats(image, pixels, 0, tint);
}

/* Each channel by itself, or all of them at once. */
INLINE void add_planes(const float *image, const Shape *shape, double *row, double *sums) {
    Py_ssize_t planes = shape->channels_first ? CHANNELS : 1, channels = CHANNELS / planes;
    for (Py_ssize_t i = 0; i < planes; i++)
        add_up_floats(image + i * shape->height * shape->width, shape->height, shape->width, channels,
                      row, sums + i * channels);
}

/* As NumPy does it, to the bit. Memory is what takes the time. */
static void blend_floats(uint8_t *one, const uint8_t *other, Py_ssize_t bytes, int share) {
    float *values = (float *)(void *)one;
    const float *partner = (const float *)(const void *)other, own = (float)share / WHOLE;
    for (Py_ssize_t i = 0; i < bytes / (Py_ssize_t)sizeof(float); i++)
        values[i] = (values[i] - partner[i]) * own + partner[i];
}

/* --- for each kind of processor --- */

typedef struct {
    void (*blend)(uint8_t *, const uint8_t *, Py_ssize_t, int);
    void (*recolour)(void *, Py_ssize_t, int, const void *);
    void (*tint)(void *, Py_ssize_t, int, const void *);
    void (*add_up)(const uint8_t *, Py_ssize_t, int, int64_t *);
    void (*add_rows)(const float *, const Shape *, double *, double *);
} Loops;

#define LOOPS(KIND, TARGET)                                                                         \
    TARGET static void blend_##KIND(uint8_t *one, const uint8_t *other, Py_ssize_t n, int share) { \
        blend(one, other, n, share);                                                               \
    }                                                                                              \
    TARGET static void recolour_##KIND(void *image, Py_ssize_t n, int first, const void *colour) { \
        recolour(image, n, first, colour);                                                         \
    }                                                                                              \
    TARGET static void tint_##KIND(void *image, Py_ssize_t n, int first, const void *tint) {       \
        recolour_each(image, n, first, tint);                                                      \
    }                                                                                              \
    TARGET static void add_up_##KIND(const uint8_t *image, Py_ssize_t n, int first,                \
                                     int64_t *sums) {                                              \
        add_up(image, n, first, sums);                                                             \
    }                                                                                              \
    TARGET static void add_rows_##KIND(const float *image, const Shape *shape, double *row,        \
                                       double *sums) {                                             \
        add_planes(image, shape, row, sums);                                                       \
    }                                                                                              \
    static const Loops loops_##KIND = {blend_##KIND, recolour_##KIND, tint_##KIND, add_up_##KIND,  \
                                       add_rows_##KIND};

LOOPS(plain, )
#ifdef HAVE_X86
LOOPS(avx2, AVX2)
LOOPS(vbmi, VBMI)
#endif

static const Loops *loops(void) {
#ifdef HAVE_X86
    __builtin_cpu_init();
    if (has_vbmi()) return &loops_vbmi;
    if (SUPPORTS("avx2")) return &loops_avx2;
#endif
    return &loops_plain;
}

/* --- mixing --- */

/* In the order's way round, so that each is mixed with one that is still as it was; the last with the
first, which is kept. */
static void mix(uint8_t *images, Py_ssize_t count, Py_ssize_t size, int floats,
                const int64_t *order, const int64_t *shares, uint8_t *kept) {
    void (*run)(uint8_t *, const uint8_t *, Py_ssize_t, int) = floats ? blend_floats : loops()->blend;
    memcpy(kept, images + order[0] * size, (size_t)size);
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint8_t *other = i + 1 < count ? images + order[i + 1] * size : kept;
        int share = (int)shares[order[i]];
        if (share < WHOLE) run(images + order[i] * size, other, size, share);
    }
}

/* Whether these are the numbers from 0 up to count, each once, and shares from 0 to WHOLE. */
static int are_right(const int64_t *order, const int64_t *shares, Py_ssize_t count, char *seen) {
    memset(seen, 0, (size_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (order[i] < 0 || order[i] >= count || seen[order[i]]) return 0;
        if (shares[i] < 0 || shares[i] > WHOLE) return 0;
        seen[order[i]] = 1;
    }
    return 1;
}

PyObject *kernel_mix(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *object;
    int floats;
    Py_ssize_t count;
    Py_buffer images;
    Loan loans[2] = {{.name = "order"}, {.name = "shares"}};
    if (!PyArg_ParseTuple(arguments, "OnOOp:mix", &object, &count, &loans[0].object,
                          &loans[1].object, &floats))
        return NULL;
    if (count < 1) return PyErr_Format(PyExc_ValueError, "count must be >= 1, got %zd", count);
    if (PyObject_GetBuffer(object, &images, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) return NULL;
    loans[0].bytes = loans[1].bytes = (size_t)count * sizeof(int64_t);
    if (!loans_open(loans, 2)) {
        PyBuffer_Release(&images);
        return NULL;
    }
    Py_ssize_t size = images.len / count;
    char *seen = malloc((size_t)count);
    uint8_t *kept = malloc(size > 0 ? (size_t)size : 1);
    if (seen == NULL || kept == NULL)
        PyErr_NoMemory();
    else if (images.len % (count * (floats ? (Py_ssize_t)sizeof(float) : 1)))
        PyErr_SetString(PyExc_ValueError, "images must be count images of one size");
    else if (!are_right(loans[0].memory, loans[1].memory, count, seen))
        PyErr_SetString(PyExc_ValueError,
                        "order must hold each image's number once, shares be in [0, 256]");
    else {
        Py_BEGIN_ALLOW_THREADS
        mix(images.buf, count, size, floats, loans[0].memory, loans[1].memory, kept);
        Py_END_ALLOW_THREADS
    }
    free(kept);
    free(seen);
    loans_close(loans, 2);
    PyBuffer_Release(&images);
    return PyErr_Occurred() ? NULL : Py_BuildValue("");
}

/* The values of so many images; 0, with an exception, where there is no such size. */
static size_t values_of(const Shape *shape) {
    const Py_ssize_t most = PY_SSIZE_T_MAX / CHANNELS / (Py_ssize_t)sizeof(double);
    Py_ssize_t count = shape->count, height = shape->height, width = shape->width;
    if (count >= 1 && height >= 1 && width >= 1 && height <= most / width &&
        count <= most / width / height)
        return (size_t)(count * height * width) * CHANNELS;
    PyErr_SetString(PyExc_ValueError, "count, height and width must be >= 1, and of some memory");
    return 0;
}

/* Run a loop over images, their matrices and their offsets, which are put into a Colour or a Tint. */
static PyObject *recolour_images(const Shape *shape, Loan loans[3], size_t item,
                                 void (*run)(void *, Py_ssize_t, int, const void *), void *colour) {
    size_t values = values_of(shape), count = (size_t)shape->count;
    if (values == 0) return NULL;
    loans[0].bytes = values * item, loans[0].flags = PyBUF_WRITABLE, loans[0].name = "images";
    loans[1].bytes = count * MATRIX_BYTES, loans[1].name = "matrices";
    loans[2].bytes = count * OFFSET_BYTES, loans[2].name = "offsets";
    if (!loans_open(loans, 3)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < count; i++) {
        memcpy(colour, (const char *)loans[1].memory + i * MATRIX_BYTES, MATRIX_BYTES);
        memcpy((char *)colour + MATRIX_BYTES, (const char *)loans[2].memory + i * OFFSET_BYTES,
               OFFSET_BYTES);
        run((char *)loans[0].memory + i * (values / count) * item, shape->height * shape->width,
            shape->channels_first, colour);
    }
    Py_END_ALLOW_THREADS
    loans_close(loans, 3);
    return Py_BuildValue("");
}

PyObject *kernel_recolour(PyObject *self, PyObject *arguments) {
    (void)self;
    Shape shape;
    Loan loans[3] = {0};
    Colour colour;
    if (!PyArg_ParseTuple(arguments, "OnnnpOOiii:recolour", &loans[0].object, &shape.count,
                          &shape.height, &shape.width, &shape.channels_first, &loans[1].object,
                          &loans[2].object, &colour.bits, &colour.low, &colour.high))
        return NULL;
    if (colour.bits < 0 || colour.bits > 30 || colour.low < 0 || colour.high > 255 ||
        colour.low > colour.high) {
        PyErr_SetString(PyExc_ValueError, "bits must be in [0, 30], bounds within 0 and 255");
        return NULL;
    }
    return recolour_images(&shape, loans, sizeof(uint8_t), loops()->recolour, &colour);
}

PyObject *kernel_recolour_floats(PyObject *self, PyObject *arguments) {
    (void)self;
    Shape shape;
    Loan loans[3] = {0};
    Tint tint;
    if (!PyArg_ParseTuple(arguments, "OnnnpOOff:recolour_floats", &loans[0].object, &shape.count,
                          &shape.height, &shape.width, &shape.channels_first, &loans[1].object,
                          &loans[2].object, &tint.low, &tint.high))
        return NULL;
    return recolour_images(&shape, loans, sizeof(float), loops()->tint, &tint);
}

PyObject *kernel_channel_sums(PyObject *self, PyObject *arguments) {
    (void)self;
    int floats;
    Shape shape;
    Loan loans[2] = {{.name = "images"}, {.name = "sums", .flags = PyBUF_WRITABLE}};
    if (!PyArg_ParseTuple(arguments, "OnnnpOp:channel_sums", &loans[0].object, &shape.count,
                          &shape.height, &shape.width, &shape.channels_first, &loans[1].object,
                          &floats))
        return NULL;
    size_t values = values_of(&shape), count = (size_t)shape.count;
    if (values == 0) return NULL;
    loans[0].bytes = values * (floats ? sizeof(float) : sizeof(uint8_t));
    loans[1].bytes = count * CHANNELS * (floats ? sizeof(double) : sizeof(int64_t));
    double *row = floats ? malloc((size_t)shape.width * CHANNELS * sizeof(double)) : NULL;
    if (floats && row == NULL) return PyErr_NoMemory();
    int is_open = loans_open(loans, 2);
    if (is_open) {
        const Loops *run = loops();
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < count; i++) {
            size_t at = i * (values / count);
            if (floats)
                run->add_rows((float *)loans[0].memory + at, &shape, row,
                             (double *)loans[1].memory + i * CHANNELS);
            else {
                int64_t own[CHANNELS] = {0};
                run->add_up((uint8_t *)loans[0].memory + at, shape.height * shape.width,
                           shape.channels_first, own);
                memcpy((int64_t *)loans[1].memory + i * CHANNELS, own, sizeof own);
            }
        }
        Py_END_ALLOW_THREADS
        loans_close(loans, 2);
    }
    free(row);
    return is_open ? Py_BuildValue("") : NULL;
}
