/* RGB images through a matrix each, where they lie, and the sums of their channels; and images of
any kind mixed with each other.

Blocks of pixels are taken apart into channels, computed, and put together again, in loops that the
compiler makes vectors of. uint8 is computed in whole numbers: 25 us for 224 x 224 pixels with AVX-512
VBMI, 42 with AVX2, 190 without (one core). Who calls sees to it that no sum leaves 32 bits. The values
of floats are NumPy's to the bit, but for the sign of what is no number: each step is one of its calls,
in its order, and nothing is contracted. */
#include "functions.h"

#include "vectors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, BLOCK = 1024, FLOAT_BLOCK = 512, WHOLE = 256 };

typedef struct {
    Py_ssize_t count, height, width;
    int channels_first;
} Shape;

/* What becomes of an image's pixels: a matrix and an offset, int32 for uint8, or float32. */
typedef struct {
    const void *matrix, *offset;
    int bits; /* For uint8. */
    double low, high;
} Colour;

/* --- uint8 --- */

INLINE void compute(const uint8_t *restrict red, const uint8_t *restrict green,
                    const uint8_t *restrict blue, uint8_t *restrict out, Py_ssize_t count,
                    const Colour *colour, int channel) {
    const int32_t *matrix = (const int32_t *)colour->matrix + CHANNELS * channel;
    const int32_t by_red = matrix[0], by_green = matrix[1], by_blue = matrix[2],
                  offset = *(const int32_t *)colour->offset, low = (int32_t)colour->low,
                  high = (int32_t)colour->high;
    const int bits = colour->bits;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t value = by_red * red[i] + by_green * green[i] + by_blue * blue[i] + offset;
        value >>= bits; /* Of negative ones, too, downwards: GCC and Clang both say so. */
        value = value < low ? low : value;
        out[i] = (uint8_t)(value > high ? high : value);
    }
}

INLINE void recolour(void *image, Py_ssize_t pixels, int channels_first, const Colour *colour) {
    uint8_t given[CHANNELS][BLOCK], made[CHANNELS][BLOCK];
    for (Py_ssize_t start = 0; start < pixels; start += BLOCK) {
        uint8_t *at = (uint8_t *)image + (channels_first ? 1 : CHANNELS) * start;
        Py_ssize_t size = pixels - start < BLOCK ? pixels - start : BLOCK;
        if (channels_first) {
            for (int channel = 0; channel < CHANNELS; channel++)
                memcpy(given[channel], at + channel * pixels, (size_t)size);
            for (int channel = 0; channel < CHANNELS; channel++)
                compute(given[0], given[1], given[2], at + channel * pixels, size, colour, channel);
            continue;
        }
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

INLINE void add_up(const uint8_t *image, Py_ssize_t count, int channels_first, int64_t *sums) {
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        const uint8_t *at = image + (channels_first ? 1 : CHANNELS) * start;
        uint32_t red = 0, green = 0, blue = 0;
        if (channels_first) {
            for (Py_ssize_t i = 0; i < size; i++) red += at[i];
            for (Py_ssize_t i = 0; i < size; i++) green += at[count + i];
            for (Py_ssize_t i = 0; i < size; i++) blue += at[2 * count + i];
        }
        for (Py_ssize_t i = 0; !channels_first && i < size; i++) {
            red += at[CHANNELS * i];
            green += at[CHANNELS * i + 1];
            blue += at[CHANNELS * i + 2];
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
                           const Colour *colour, int channel) {
    const float *matrix = (const float *)colour->matrix + CHANNELS * channel;
    const float by_red = matrix[0], by_green = matrix[1], by_blue = matrix[2],
                offset = *(const float *)colour->offset, low = (float)colour->low,
                high = (float)colour->high;
    for (Py_ssize_t i = 0; i < count; i++) {
        float value = by_red * red[i] + by_green * green[i] + by_blue * blue[i] + offset;
        value = value <= low ? low : value; /* As NumPy does: what is no number stays so. */
        out[i] = value >= high ? high : value;
    }
}

INLINE void recolour_floats(void *image, Py_ssize_t pixels, int channels_first,
                            const Colour *colour) {
    float given[CHANNELS][FLOAT_BLOCK], made[CHANNELS][FLOAT_BLOCK];
    Py_ssize_t step = channels_first ? 1 : CHANNELS, apart = channels_first ? pixels : 1;
    for (Py_ssize_t start = 0; start < pixels; start += FLOAT_BLOCK) {
        float *at = (float *)image + step * start;
        Py_ssize_t size = pixels - start < FLOAT_BLOCK ? pixels - start : FLOAT_BLOCK;
        for (int channel = 0; channel < CHANNELS; channel++)
            for (Py_ssize_t i = 0; i < size; i++)
                given[channel][i] = at[channel * apart + step * i];
        for (int channel = 0; channel < CHANNELS; channel++)
            compute_floats(given[0], given[1], given[2], made[channel], size, colour, channel);
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
    void (*recolour)(void *, Py_ssize_t, int, const Colour *);
    void (*recolour_floats)(void *, Py_ssize_t, int, const Colour *);
    void (*add_up)(const uint8_t *, Py_ssize_t, int, int64_t *);
    void (*add_rows)(const float *, const Shape *, double *, double *);
} Loops;

#define LOOPS(KIND, TARGET)                                                                        \
    TARGET static void blend_##KIND(uint8_t *one, const uint8_t *other, Py_ssize_t n, int share) { \
        blend(one, other, n, share);                                                               \
    }                                                                                              \
    TARGET static void recolour_##KIND(void *image, Py_ssize_t n, int first,                       \
                                       const Colour *colour) {                                     \
        recolour(image, n, first, colour);                                                         \
    }                                                                                              \
    TARGET static void floats_##KIND(void *image, Py_ssize_t n, int first, const Colour *colour) { \
        if (first) /* Each by itself, as the steps are known then. */                              \
            recolour_floats(image, n, 1, colour);                                                  \
        else                                                                                       \
            recolour_floats(image, n, 0, colour);                                                  \
    }                                                                                              \
    TARGET static void add_up_##KIND(const uint8_t *image, Py_ssize_t n, int first,                \
                                     int64_t *sums) {                                              \
        add_up(image, n, first, sums);                                                             \
    }                                                                                              \
    TARGET static void add_rows_##KIND(const float *image, const Shape *shape, double *row,        \
                                       double *sums) {                                             \
        add_planes(image, shape, row, sums);                                                       \
    }                                                                                              \
    static const Loops loops_##KIND = {blend_##KIND, recolour_##KIND, floats_##KIND,               \
                                       add_up_##KIND, add_rows_##KIND};

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

static int are_right(const int64_t *order, const int64_t *shares, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (order[i] < 0 || order[i] >= count || shares[i] < 0 || shares[i] > WHOLE) return 0;
    return 1;
}

PyObject *kernel_mix(PyObject *self, PyObject *arguments) {
    (void)self;
    int floats;
    Py_ssize_t count;
    Py_buffer images, order, shares;
    if (!PyArg_ParseTuple(arguments, "w*ny*y*p:mix", &images, &count, &order, &shares, &floats))
        return NULL;
    Py_ssize_t size = count < 1 ? 0 : images.len / count;
    size_t bytes = (size_t)count * sizeof(int64_t);
    uint8_t *kept = NULL;
    if (count < 1 || size * count != images.len || (floats && size % (Py_ssize_t)sizeof(float)))
        PyErr_SetString(PyExc_ValueError, "images must be count images of one size");
    else if (has_bytes(&order, bytes, "order") && has_bytes(&shares, bytes, "shares")) {
        if (!are_right(order.buf, shares.buf, count))
            PyErr_SetString(PyExc_ValueError, "order must be of images, shares in [0, 256]");
        else if ((kept = malloc((size_t)size + 1)) == NULL)
            PyErr_NoMemory();
    }
    if (kept != NULL) {
        Py_BEGIN_ALLOW_THREADS
        mix(images.buf, count, size, floats, order.buf, shares.buf, kept);
        Py_END_ALLOW_THREADS
    }
    free(kept);
    PyBuffer_Release(&images);
    PyBuffer_Release(&order);
    PyBuffer_Release(&shares);
    return PyErr_Occurred() ? NULL : Py_BuildValue("");
}

/* Values of an image of this shape; 0, with an exception, where the images aren't that large. */
static size_t values_of(const Shape *shape, const Py_buffer *images, size_t item) {
    Py_ssize_t count = shape->count, height = shape->height, width = shape->width;
    if (count >= 1 && height >= 1 && width >= 1 && height <= images->len / width &&
        count <= images->len / (height * width)) {
        size_t values = (size_t)height * (size_t)width * CHANNELS;
        return has_bytes(images, (size_t)count * values * item, "images") ? values : 0;
    }
    PyErr_SetString(PyExc_ValueError, "count, height and width must be >= 1, and of the images");
    return 0;
}

PyObject *kernel_recolour(PyObject *self, PyObject *arguments) {
    (void)self;
    Shape shape;
    Colour colour;
    Py_buffer images, matrices, offsets;
    if (!PyArg_ParseTuple(arguments, "w*nnnpy*y*idd:recolour", &images, &shape.count, &shape.height,
                          &shape.width, &shape.channels_first, &matrices, &offsets, &colour.bits,
                          &colour.low, &colour.high))
        return NULL;
    enum { MATRIX_BYTES = 4 * CHANNELS * CHANNELS, OFFSET_BYTES = 4 };
    int floats = colour.bits < 0;
    size_t item = floats ? sizeof(float) : 1, count = (size_t)shape.count;
    size_t values = values_of(&shape, &images, item);
    int is_right = values != 0 && has_bytes(&matrices, count * MATRIX_BYTES, "matrices") &&
                   has_bytes(&offsets, count * OFFSET_BYTES, "offsets");
    if (is_right && !floats &&
        (colour.bits > 30 || colour.low < 0 || colour.high > 255 || colour.low > colour.high)) {
        PyErr_SetString(PyExc_ValueError, "bits must be up to 30, bounds within 0 and 255");
        is_right = 0;
    }
    if (is_right) {
        const Loops *run = loops();
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < count; i++) {
            colour.matrix = (const char *)matrices.buf + i * MATRIX_BYTES;
            colour.offset = (const char *)offsets.buf + i * OFFSET_BYTES;
            (floats ? run->recolour_floats : run->recolour)((char *)images.buf + i * values * item,
                                                            shape.height * shape.width,
                                                            shape.channels_first, &colour);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&images);
    PyBuffer_Release(&matrices);
    PyBuffer_Release(&offsets);
    return is_right ? Py_BuildValue("") : NULL;
}

PyObject *kernel_channel_sums(PyObject *self, PyObject *arguments) {
    (void)self;
    int floats;
    Shape shape;
    Py_buffer images, out;
    if (!PyArg_ParseTuple(arguments, "y*nnnpw*p:channel_sums", &images, &shape.count, &shape.height,
                          &shape.width, &shape.channels_first, &out, &floats))
        return NULL;
    size_t item = floats ? sizeof(float) : 1, count = (size_t)shape.count;
    size_t values = values_of(&shape, &images, item);
    double *row = NULL;
    int is_right = values != 0 && has_bytes(&out, count * CHANNELS * sizeof(int64_t), "sums");
    if (is_right && (row = malloc((size_t)shape.width * CHANNELS * sizeof(double))) == NULL)
        PyErr_NoMemory();
    if (row != NULL) {
        const Loops *run = loops();
        memset(out.buf, 0, (size_t)out.len);
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < count; i++) {
            const void *image = (const char *)images.buf + i * values * item;
            void *sums = (int64_t *)out.buf + i * CHANNELS;
            if (floats)
                run->add_rows(image, &shape, row, sums);
            else
                run->add_up(image, shape.height * shape.width, shape.channels_first, sums);
        }
        Py_END_ALLOW_THREADS
    }
    free(row);
    PyBuffer_Release(&images);
    PyBuffer_Release(&out);
    return PyErr_Occurred() ? NULL : Py_BuildValue("");
}
