/* Baseline JPEGs into rows of a batch: only the pixels that are used.
 *
 * An image is decoded from its first row that is used to its last, between its first MCU column that
 * is used and its last, at 1 / factor of its size; each row is resized as it comes, so that no image
 * is ever in memory as a whole. What one decoder holds is its own: as many threads may decode as
 * there are decoders. Nothing here knows of Python.
 */
#ifndef ADAPTERS_IMAGES_JPEG_H
#define ADAPTERS_IMAGES_JPEG_H

#include <stddef.h>
#include <stdint.h>

/* No image of more pixels is decoded: 16,384 x 16,384. */
#define MOST_PIXELS (1L << 28)

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
} Batch;

typedef enum {
    DECODED = 0,
    NOT_OURS = 1, /* No baseline JPEG in grey, YCbCr or RGB, or one that is damaged or cut short. */
    NO_MEMORY = 2,
} Outcome;

/* Height and width as the header has them; 0 where it isn't as usual, or the image too large. */
int jpeg_size(const uint8_t *jpeg, size_t bytes, int32_t *height, int32_t *width);

typedef struct Decoder Decoder;

/* NULL where there is no memory. */
Decoder *decoder_new(void);
void decoder_free(Decoder *decoder);

/* Decode one image into its row, which holds anything at all where the outcome isn't DECODED. */
Outcome decoder_decode(Decoder *decoder, const uint8_t *jpeg, size_t bytes, const Crop *crop,
                       const Batch *batch);

#endif
