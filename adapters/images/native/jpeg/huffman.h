/* Huffman decoding in libjpeg's stead, which is what takes most of its time.
 *
 * One look into a table takes up to two coefficients and the end of a block, where libjpeg takes
 * three steps for each; where only the place in the data matters, left and right of the columns
 * that are used or above the rows, a look takes as many as there are codes of in it. The
 * coefficients are libjpeg's to the bit; damage that it would warn of ends the image.
 *
 * frame.h decodes without libjpeg by this. For other images it takes the place of libjpeg's own
 * function, whose slot is private: only in a libjpeg that is linked statically, with HAVE_JPEGINT
 * defined, as its jpegint.h says for certain where that is.
 */
#ifndef ADAPTERS_IMAGES_HUFFMAN_H
#define ADAPTERS_IMAGES_HUFFMAN_H

#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum {
    COMPONENTS = 3,
    HUFFMAN_LANES = 4, /* Blocks whose rows huffman_decode puts side by side. */
};

enum {
    LOOK_BITS = 10, /* Of a coefficient's code and value, most have no more. */
    SKIM_BITS = 11, /* Measured: neither is faster with one bit more or less. */
};

/* A Huffman table, and what it was made of. */
typedef struct {
    uint8_t lengths[17], symbols[256];
    int known;
    uint32_t limits[17]; /* Behind the last code of so many bits, as the first of 16 bits. */
    int32_t first[17];   /* The symbol's place is this and a code of so many bits. */
    uint32_t look[1 << LOOK_BITS];
    uint16_t skim[1 << SKIM_BITS]; /* For AC tables. */
} Codes;

/* The next `count` bits are the uppermost of `held`; of those, the last `borrowed` are no data. */
typedef struct {
    uint64_t held;
    int count, borrowed;
    const uint8_t *at, *end;
} Bits;

/* How a block is coded, and its component's DC coefficient before. */
typedef struct {
    const Codes *dc, *ac;
    uint32_t *last_dc;
} Coding;

typedef struct {
    Codes dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
    Bits bits;
    uint32_t last_dc[COMPONENTS];
    Coding codings[D_MAX_BLOCKS_IN_MCU];
    int blocks; /* Of an MCU. */
    JDIMENSION column, first, last; /* MCUs of a row; the coefficients of first to last are used. */
    JDIMENSION left;                /* MCUs of the image. */
} Huffman;

/* Decode in libjpeg's stead, where that can be done.
 *
 * Called between jpeg_start_decompress and the first row that is read or skipped, with `columns` of
 * the output's pixels from `from` on, both as jpeg_crop_scanline left them. `client_data` must be
 * `huffman`, which may be that of the image before. */
void huffman_take_over(Huffman *huffman, struct jpeg_decompress_struct *jpeg, JDIMENSION from,
                       JDIMENSION columns);

/* Decode without libjpeg, from where its reading of the header ended; 0 where that can't be done. */
int huffman_begin(Huffman *huffman, const struct jpeg_decompress_struct *jpeg);

/* The next MCU's coefficients into its blocks, which are zero; a block's row is 8 * HUFFMAN_LANES
 * numbers behind the one before. 0 for damaged ones. */
int huffman_decode(Huffman *huffman, JCOEF *const *blocks);

/* Go past so many MCUs; 0 for damaged ones. */
int huffman_skip(Huffman *huffman, int64_t count);

/* Whether nothing is left but filling and the marker of the image's end. */
int huffman_ends(Huffman *huffman);

#endif
