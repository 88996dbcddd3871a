/* Huffman tables, made for few looks: what huffman.h decodes with. */
#ifndef ADAPTERS_IMAGES_CODES_H
#define ADAPTERS_IMAGES_CODES_H

#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum {
    LOOK_BITS = 10, /* Of a coefficient's code and value, most have no more. */
    SKIM_BITS = 11, /* Measured: neither is faster with one bit more or less. */
};

/* An entry of `look` is as many of a block's next coefficients as fit, two at most: how many bits it
 * takes, how many coefficients are zero before the first one, how far behind that the second one is,
 * with 0 for none, and their values. */
#define ENTRY(taken, zeros, value) \
    ((uint32_t)(taken) | (uint32_t)(zeros) << 8 | (uint32_t)(value) << 22)
#define TAKEN(entry) ((int)((entry)&63))
#define ZEROS(entry) ((entry) >> 8 & 15)
#define STEP(entry) ((entry) >> 12 & 15)
#define SECOND(entry) ((int32_t)((entry) << 10) >> 26)
#define VALUE(entry) ((int32_t)(entry) >> 22)

enum {
    /* In an entry: one code only, and as the value, how many bits that has; they don't fit. Without
     * bits, the code doesn't, or there is no such code. */
    PARTIAL = 1 << 6,
    /* In an entry: there are no more coefficients. */
    END = 1 << 7,
    /* An entry of `skim`: bits, then coefficients, then whether there are no more. It takes more bits
     * than are looked at, as values may lie behind them. */
    SKIM_STEP = 1 << 6,
    SKIM_END = 1 << 15,
    MOST_SKIMMED = 15,
    MOST_SIZE = 15, /* Bits of a value. */
    LAST = DCTSIZE2 - 1,
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

/* Make them of an image's table, unless they are that one's already; 0 where it is none. */
int codes_make(Codes *codes, const JHUFF_TBL *table, int is_ac);

/* The number that so many bits stand for. */
static inline int32_t number_of(uint32_t bits, int size) {
    if (size == 0) return 0;
    uint32_t negative = (bits >> (size - 1)) - 1; /* All ones, or none. */
    return (int32_t)(bits - (negative & ((1U << size) - 1)));
}

/* A code by itself, with the size of its value; a size of none is the end but after fifteen zeros. */
static inline uint32_t code_of(int length, uint8_t symbol, int is_ac) {
    if (!is_ac) return ENTRY(length, 0, symbol & 15);
    if ((symbol & 15) == 0 && symbol != 0xF0) return ENTRY(length, 0, 0) | END;
    return ENTRY(length, symbol >> 4, symbol & 15);
}

#endif
