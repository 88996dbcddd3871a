/* From images' rows to rows of a batch: what is wanted of a image, where it goes, and the loops
 * from one to the other, whoever has the pixels. What a workspace holds is one thread's own.
 */
#ifndef ADAPTERS_IMAGES_BATCH_H
#define ADAPTERS_IMAGES_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "resize.h"

/* No image of more pixels is decoded: 16,384 x 16,384. */
#define MOST_PIXELS (1L << 28)

enum { LINE = 64 }; /* Bytes of the processor's cache. */

/* Along one axis, pixels [begin, begin + length) of the reduced image are resized to `resized`, of
 * which the row takes those from `offset` on. */
typedef struct {
    int32_t begin, length, resized, offset;
} Axis;

/* What is wanted of one image. */
typedef struct {
    int32_t row;            /* Of the batch. */
    int32_t height, width;  /* Of the whole image; another one is refused. */
    int32_t factor;         /* 1, 2, 4 or 8. */
    Axis vertical, horizontal;
    int32_t flip;  /* Left to right, at the end. */
} Crop;

/* Where the rows are: C-contiguous, (rows, height, width, 3) or (rows, 3, height, width). */
typedef struct {
    void *start;
    int32_t rows, height, width;
    int channels_first;
    const float *table; /* (3, 256): what a channel's value becomes, in float32; NULL for uint8. */
    int is_cast;        /* Whether these are the channels' values themselves. */
} Batch;

typedef enum {
    DECODED = 0,
    NOT_OURS = 1, /* A image of another kind, or one that is damaged or cut short. */
    NO_MEMORY = 2,
} Outcome;

/* Memory for one image at a time, as large as the largest one so far needed; all 0 at first. */
typedef struct {
    Tap *taps; /* Across, then down. */
    Eight *eights;
    int16_t *lines; /* Two rows that were resized along the horizontal axis. */
    uint8_t *done;  /* A row of the batch, before it is laid out. */
    uint8_t *pixels; /* Rows as they were decoded. */
    size_t taps_bytes, eights_bytes, lines_bytes, done_bytes, pixels_bytes;
} Workspace;

/* Row `y` of the image's RGB pixels; asked for from the first one on, and none before the last one
 * asked for. ROW_MARGIN bytes behind what is used of it may be read. It stays until the next one is
 * asked for. */
typedef const uint8_t *RowOf(void *source, int32_t y);

/* Whether there are as many bytes, from a cache line's first one; what they held is lost. */
int grown(void **memory, size_t *held, size_t bytes);

/* Whether there is memory for a row of this batch, and so many bytes of decoded rows. */
int workspace_prepare(Workspace *workspace, const Batch *batch, size_t pixels_bytes);
void workspace_free(Workspace *workspace);

/* Whether so many pixels have the crop's box, and what it is resized to has `wanted` ones. */
int axis_fits(const Axis *axis, int64_t pixels, int32_t wanted);

/* One behind the last pixel that a tap reads. */
int32_t tap_end(const Tap *tap, const Axis *axis);

/* Left to right. */
void taps_turn(Tap *taps, int32_t count);

/* Copy or resize RGB pixels into the crop's row. `across` says where in a row that `row_of` gives,
 * turned already; `down` counts from the box's first row. */
void rgb_rows(Workspace *workspace, const Tap *across, const Tap *down, const Crop *crop,
              const Batch *batch, RowOf *row_of, void *source);

#endif
