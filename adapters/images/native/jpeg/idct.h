/* libjpeg's accurate inverse DCT, of four blocks at once, to the bit of its vectors; for processors that
 * have VBMI. Numbers that no encoder writes have too many bits for them, and wrap as there; libjpeg without
 * vectors makes other pixels of those. */
#ifndef ADAPTERS_IMAGES_IDCT_H
#define ADAPTERS_IMAGES_IDCT_H

#include <stddef.h>
#include <stdint.h>

enum { IDCT_BLOCKS = 4, IDCT_ROW = 8 * IDCT_BLOCKS, IDCT_NUMBERS = 8 * IDCT_ROW };

/* `coefficients` and `steps`, which they are multiplied by, are eight rows of IDCT_ROW numbers each,
 * from a cache line's first one: the blocks' rows side by side. Pixels are written, 16 a row: of the
 * first two blocks to `first`, of the others to `second`, rows `stride` bytes apart. The coefficients
 * are 0 then. */
void idct_four(int16_t *coefficients, const int16_t *steps, uint8_t *first, uint8_t *second,
               size_t stride);

#endif
