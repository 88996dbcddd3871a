/* Planes of Y, U and V resized a row at a time, and made RGB only where the batch has its pixels.
 *
 * A plane's row is resized along the horizontal axis as in resize.h: weights of 11 bits, values of 16.
 * Two such rows of each plane become a row of the batch. There, a value has 3 bits behind the point,
 * and every product with a weight or a coefficient is rounded to that: `rounded(a, b)`, which is
 * (a * b + 2^14) >> 15. With U and V less 128:
 *
 *     R = Y + 2 V - rounded(V, 0.598)                0.598 as 19,595 / 2^15, and so on
 *     G = Y - U + rounded(U, 0.655864) - rounded(V, 0.714136)
 *     B = Y + U + rounded(U, 0.772)
 *
 * each (x + 4) >> 3, from 0 to 255. That is BT.601 in full range, as JFIF has it.
 */
#ifndef ADAPTERS_IMAGES_YUV_H
#define ADAPTERS_IMAGES_YUV_H

#include "resize.h"

/* Four output pixels, for processors that pick any bytes out of 16: which ones, from pixel `at` on,
 * and their weights. */
typedef struct {
    _Alignas(16) uint8_t places[16];
    int16_t weights[8];
    int32_t at;
} Quad;

/* Sixteen, for those that pick any bytes out of 64. */
typedef struct {
    _Alignas(64) uint8_t places[64];
    int16_t weights[32];
    int32_t at;
} Sixteen;

/* How a plane's rows are resized along the horizontal axis. */
typedef struct {
    const Tap *taps;
    int32_t width;
    Sixteen *sixteens; /* Of the first pixels. */
    Quad *quads;       /* Of those behind. */
    int32_t sixteens_count, quads_count;
} Across;

/* What becomes one row: of each plane the row above and the one below, and their weights. */
typedef struct {
    const int16_t *y[2], *u[2], *v[2];
    int16_t luma[2], chroma[2];
} Between;

/* The taps of a plane of half as many pixels, `plane` of them: where those of the pixels [begin,
 * begin + length) are that `taps_fill` would give. JFIF has the middle of a plane's pixel between
 * the two pixels that it is of. They count from the plane's first pixel. */
void half_taps_fill(Tap *taps, int32_t begin, int32_t length, int32_t resized, int32_t offset,
                    int32_t count, int32_t plane);

/* Fill the two kinds, with room for `width` / 16 and `width` / 4. */
void across_fill(Across *across);

/* Pixels of a plane -> int16 (width). */
void plane_horizontally(const uint8_t *pixels, const Across *across, int16_t *out);

/* A row of each channel, uint8 (width). */
void yuv_vertically(const Between *between, int32_t width, uint8_t *red, uint8_t *green,
                    uint8_t *blue);

/* The same without colour. */
void grey_vertically(const Between *between, int32_t width, uint8_t *grey);

/* Three rows -> uint8 (width, 3). */
void interleave(const uint8_t *red, const uint8_t *green, const uint8_t *blue, int32_t width,
                uint8_t *out);

#endif
