/* A picture of any kind into its row of a batch: which of jpeg.h and raw.h it is for. */
#ifndef ADAPTERS_IMAGES_PICTURE_H
#define ADAPTERS_IMAGES_PICTURE_H

#include "batch.h"

/* Whether it may be decoded at a part of its size. */
int picture_is_reducible(const uint8_t *bytes, size_t size);

/* Height and width as the header has them; 0 where another decoder must look at it. */
int picture_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width);

/* What one thread decodes pictures with. */
typedef struct Pictures Pictures;

/* NULL where there is no memory. */
Pictures *pictures_new(void);
void pictures_free(Pictures *pictures);

/* Decode one picture into its row, which holds anything at all where the outcome isn't DECODED. */
Outcome picture_decode(Pictures *pictures, const uint8_t *bytes, size_t size, const Crop *crop,
                       const Batch *batch);

#endif
