/* Rows of luma and of chroma at half the size, 4:2:0, to RGB, to the bit of libjpeg's "fancy"
 * upsampling and of its colours; for processors that have VBMI. */
#ifndef ADAPTERS_IMAGES_YCC_H
#define ADAPTERS_IMAGES_YCC_H

#include <stdint.h>

enum {
    YCC_PIXELS = 64, /* That are made at once. */
    YCC_SAMPLES = YCC_PIXELS / 2,
};

/* Of Cb and of Cr, a number for each sample; YCC_SAMPLES numbers before the first one and behind the last
 * one may be read and written, too. */
typedef int16_t *YccSums[2];

/* `count` samples of both rows of Cb and Cr, the nearer one and the other one, into sums: across, a
 * sample's neighbours are those left and right of it, and those at the ends have themselves. */
void ycc_sum(const uint8_t *const near[2], const uint8_t *const far[2], int32_t count,
             YccSums sums);

/* `width` pixels, up to the next YCC_PIXELS, of a row whose chroma was summed: uint8 RGB. */
void ycc_row(const uint8_t *luma, const YccSums sums, int32_t width, uint8_t *rgb);

#endif
