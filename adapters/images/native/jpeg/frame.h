/* The rows of a JPEG of the usual kind, baseline and with chroma at half the size (4:2:0), without
 * libjpeg: it has read the header, and does the rest, too, where this isn't for the image or for the
 * processor, which must have VBMI.
 *
 * Columns that aren't used are only gone past, as are the rows above. Pixels are libjpeg's to the bit;
 * what it would warn of is damage.
 */
#ifndef ADAPTERS_IMAGES_FRAME_H
#define ADAPTERS_IMAGES_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "huffman.h"
#include "idct.h"
#include "ycc.h"

enum { FRAME_PLANES = 3 };

/* As much memory as the largest image so far needed; all 0 at first. */
typedef struct {
    Huffman *huffman;
    /* What is decoded: MCUs [first, first + count) of a row, which has `columns`; rows of MCUs up to the
     * one of which the pixels are there, of `rows`. */
    int32_t first, count, columns, rows, row;
    int32_t samples, lines; /* Of chroma, as far as it is used and in the whole image. */
    int32_t width;          /* Pixels of a row, as far as they are used. */
    uint8_t *memory;        /* All of the following. */
    size_t bytes;
    size_t strides[FRAME_PLANES];
    uint8_t *planes[FRAME_PLANES]; /* The row above that of the MCUs, and those of the MCUs. */
    int16_t *coefficients, *steps; /* Of two MCUs: IDCT_NUMBERS of luma for each, of both's chroma. */
    YccSums sums;
    uint8_t *rgb;
} Frame;

void frame_free(Frame *frame);

typedef enum { FRAME_TAKEN, FRAME_LEFT, FRAME_NO_MEMORY } Taken;

/* Begin where reading the header ended, for rows from `top` on and columns [left, right). */
Taken frame_begin(Frame *frame, Huffman *huffman, const struct jpeg_decompress_struct *jpeg,
                  int32_t top, int32_t left, int32_t right);

/* Which pixel of the image a row begins with. */
int32_t frame_left(const Frame *frame);

/* Row `y`, which is none before the last one asked for, uint8 RGB; NULL where it is damaged. */
const uint8_t *frame_row(Frame *frame, int32_t y);

/* Whether nothing is damaged up to row `y`, and in the last row of MCUs up to the image's end. No row
 * can be asked for then. */
int frame_check(Frame *frame, int32_t y);

#endif
