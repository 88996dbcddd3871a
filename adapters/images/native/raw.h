/* Raw images into rows of a batch, straight from where they lie: arrays in NPY's format, uint8
 * (height, width), (height, width, 1) or (height, width, 3) in C order. Only the rows and columns
 * that the crop uses are read. Nothing here knows of Python.
 */
#ifndef ADAPTERS_IMAGES_RAW_H
#define ADAPTERS_IMAGES_RAW_H

#include "batch.h"

/* Height and width of a raw image; returns 0 if it is of another kind, damaged, truncated or too
 * large. */
int raw_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width);

/* Resize one image into its row. Its crop must have factor 1. The row is undefined unless the outcome
 * is DECODED. */
Outcome raw_resize(Workspace *workspace, const uint8_t *bytes, size_t size, const Crop *crop,
                   const Batch *batch);

#endif
