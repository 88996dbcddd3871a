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

#include "../batch.h"

/* Height and width as the header has them; 0 where it isn't as usual, or the image too large. */
int jpeg_size(const uint8_t *jpeg, size_t bytes, int32_t *height, int32_t *width);

/* Whether our Huffman decoding takes the place of libjpeg's: of one that is linked statically. */
extern const int HUFFMAN_IS_OWN;

typedef struct Decoder Decoder;

/* NULL where there is no memory. */
Decoder *decoder_new(void);
void decoder_free(Decoder *decoder);

/* Decode one baseline JPEG in grey, YCbCr or RGB into its row, which holds anything at all where
 * the outcome isn't DECODED. */
Outcome decoder_decode(Decoder *decoder, const uint8_t *jpeg, size_t bytes, const Crop *crop,
                       const Batch *batch);

#endif
