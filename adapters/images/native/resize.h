/* Bilinear resizing with half-pixel centres, a row at a time.
 *
 * The arithmetic is that of OpenCV's INTER_LINEAR for 8 bits: weights of 11 bits, a row's pixels kept
 * in 16. A row that was resized along the horizontal axis has four lanes per pixel, the last of which
 * means nothing.
 */
#ifndef ADAPTERS_IMAGES_RESIZE_H
#define ADAPTERS_IMAGES_RESIZE_H

#include <stddef.h>
#include <stdint.h>

/* Where an output pixel comes from: `weight[0]` of pixel `at`, `weight[1]` of the one behind it. */
typedef struct {
    int32_t at;
    int16_t weight[2];
} Tap;

/* Eight output pixels, for processors that pick any bytes out of 64 at once: which ones, from pixel
 * `at` on, and their weights, of the pixels with even places and of those with odd ones. */
typedef struct {
    _Alignas(64) uint8_t places[2][64];
    int16_t weights[2][32];
    int32_t at;
} Eight;

/* Bytes that may be read behind a row of pixels. */
enum { ROW_MARGIN = 64 };

/* The taps of output pixels [offset, offset + count), of `length` pixels resized to `resized`.
 * Never points behind the last pixel but with weight 0. */
void taps_fill(Tap *taps, int32_t length, int32_t resized, int32_t offset, int32_t count);

/* The same taps, eight by eight, from the first one on. Returns for how many eights that is done,
 * none where the processor has no use for them; there must be room for `width` / 8. */
int32_t eights_fill(Eight *eights, const Tap *taps, int32_t width);

/* RGB pixels -> int16 (width, 4). */
void resize_horizontally(const uint8_t *pixels, const Tap *taps, int32_t width,
                         const Eight *eights, int32_t count, int16_t *out);

/* Two of those rows -> uint8 (width, 3). */
void resize_vertically(const int16_t *above, const int16_t *below, const int16_t weight[2],
                       int32_t width, uint8_t *out);

#endif
