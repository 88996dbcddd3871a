/* Pictures that are stored as pixels into rows of a batch, straight from where they lie: arrays in
 * NPY's format, uint8 (height, width), (height, width, 1) or (height, width, 3) in C order; and Y, U
 * and V planes, of which planes.py draws the bytes. Neither is decoded as a whole: what the crop takes
 * is resized to the row, and planes become RGB only there. Nothing here knows of Python.
 */
#ifndef ADAPTERS_IMAGES_PLANES_H
#define ADAPTERS_IMAGES_PLANES_H

#include "batch.h"

/* Height and width of such a picture; 0 where it is another one, damaged, cut short or too large. */
int planes_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width);

typedef struct Resizer Resizer;

/* NULL where there is no memory. One thread's own. */
Resizer *resizer_new(void);
void resizer_free(Resizer *resizer);

/* Resize one picture into its row, whose crop has factor 1; the row holds anything at all where the
 * outcome isn't DECODED. */
Outcome planes_resize(Resizer *resizer, const uint8_t *bytes, size_t size, const Crop *crop,
                      const Batch *batch);

#endif
