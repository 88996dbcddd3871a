/* What is wanted of an image, computed from its size alone: the arithmetic of geometry.py.
 *
 * Every step is as there, in the same order and in double, so that each number is the same to the
 * bit; and what is drawn is what numpy.random.Generator(Philox(key, counter)).random() would give.
 */
#ifndef ADAPTERS_IMAGES_CROPS_H
#define ADAPTERS_IMAGES_CROPS_H

#include "batch.h"

typedef enum { WHOLE = 0, CENTER = 1, RANDOM = 2, RANDOM_RESIZED = 3 } Cut;

/* Of an ImageDecoder. */
typedef struct {
    int32_t cut;
    int32_t resize_short; /* 0 for none. */
    double area[2], ratio[2];
    double log_ratio[2];
    int flip;
} Asked;

/* Where the random numbers of one image begin. */
typedef struct {
    uint64_t key[2], counter[4];
} Seed;

/* The crop of an image of this size for a row of `batch`, all but crop->row; where the image
 * `is_reducible`, as JPEGs are, at a part of its size if that is enough.
 *
 * `seed` may be NULL where nothing is drawn. Returns 0 where the numbers are beyond what a crop
 * holds or what is decoded at all, and geometry.py is to say what is wrong. */
int crop_of(const Asked *asked, const Seed *seed, int32_t height, int32_t width, int is_reducible,
            const Batch *batch, Crop *crop);

#endif
