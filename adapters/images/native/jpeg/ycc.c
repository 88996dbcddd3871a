#include "ycc.h"

#include "../vectors.h"

#ifndef HAVE_X86
void ycc_sum(const uint8_t *const near[2], const uint8_t *const far[2], int32_t count,
             YccSums sums) {
    (void)near, (void)far, (void)count, (void)sums;
}

void ycc_row(const uint8_t *luma, const YccSums sums, int32_t width, uint8_t *rgb) {
    (void)luma, (void)sums, (void)width, (void)rgb;
}
#else
#include <immintrin.h>

enum {
    /* What chroma stands for is what it is less 128; of four of it, summed. */
    CENTRE = 4 * 128,
    /* Factors of 1 << 15, of 1.402 - 1 and 1.772 - 2, rounded as libjpeg's products are for each of the
     * 256 values; and libjpeg's of 1 << 16, of -0.34414 and 1 - 0.71414. */
    RED = 13173, BLUE = -7471,
    GREEN_BLUE = -22554, GREEN_RED = 18734,
};

/* Where pixel p of 64 is, after packs of those with even places and those with odd ones. */
#define AT(p) ((p) / 16 * 16 + (p) % 2 * 8 + (p) % 16 / 2)
/* Where byte b of 192 comes from: red from the first 64, green from the second; and blue. */
#define FROM(b) (uint8_t)(AT((b) / 3) + (b) % 3 % 2 * 64)
#define FOUR(b) FROM(b), FROM((b) + 1), FROM((b) + 2), FROM((b) + 3)
#define SIXTEEN(b) FOUR(b), FOUR((b) + 4), FOUR((b) + 8), FOUR((b) + 12)
#define SIXTY_FOUR(b) SIXTEEN(b), SIXTEEN((b) + 16), SIXTEEN((b) + 32), SIXTEEN((b) + 48)

static const uint8_t FROMS[3][64] = {{SIXTY_FOUR(0)}, {SIXTY_FOUR(64)}, {SIXTY_FOUR(128)}};
static const uint64_t BLUES[3] = {0x4924924924924924, 0x2492492492492492, 0x9249249249249249};

#define LANES VBMI static inline __attribute__((always_inline))

/* Of 32 pixels, with chroma of 16 bits less its centre. */
LANES void colour(__m512i luma, __m512i cb, __m512i cr, __m512i rgb[3]) {
    const __m512i factors = _mm512_set1_epi32((int)((uint32_t)GREEN_RED << 16 | (uint16_t)GREEN_BLUE));
    const __m512i half = _mm512_set1_epi32(1 << 15);
    __m512i red = _mm512_mulhrs_epi16(cr, _mm512_set1_epi16(RED));
    rgb[0] = _mm512_add_epi16(_mm512_add_epi16(red, cr), luma);
    __m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(cb, cr), factors);
    __m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(cb, cr), factors);
    low = _mm512_srai_epi32(_mm512_add_epi32(low, half), 16);
    high = _mm512_srai_epi32(_mm512_add_epi32(high, half), 16);
    __m512i green = _mm512_sub_epi16(_mm512_packs_epi32(low, high), cr);
    rgb[1] = _mm512_add_epi16(green, luma);
    __m512i blue = _mm512_mulhrs_epi16(cb, _mm512_set1_epi16(BLUE));
    rgb[2] = _mm512_add_epi16(_mm512_add_epi16(blue, _mm512_add_epi16(cb, cb)), luma);
}

/* Of the pixels over 32 samples, those with even places and those with odd ones. */
LANES void upsample(const int16_t *sums, __m512i *even, __m512i *odd) {
    __m512i own = _mm512_loadu_si512(sums);
    __m512i left = _mm512_loadu_si512(sums - 1), right = _mm512_loadu_si512(sums + 1);
    own = _mm512_add_epi16(_mm512_add_epi16(own, own), own);
    *even = _mm512_add_epi16(_mm512_add_epi16(own, left), _mm512_set1_epi16(8));
    *odd = _mm512_add_epi16(_mm512_add_epi16(own, right), _mm512_set1_epi16(7));
    *even = _mm512_srai_epi16(*even, 4);
    *odd = _mm512_srai_epi16(*odd, 4);
}

LANES __m512i sum_of(const uint8_t *near, const uint8_t *far) {
    __m512i a = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)near));
    __m512i b = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)far));
    a = _mm512_add_epi16(_mm512_add_epi16(a, a), _mm512_add_epi16(a, b));
    return _mm512_sub_epi16(a, _mm512_set1_epi16(CENTRE));
}

VBMI void ycc_sum(const uint8_t *const near[2], const uint8_t *const far[2], int32_t count,
                  YccSums sums) {
    for (int c = 0; c < 2; c++) {
        for (int32_t i = 0; i < count; i += YCC_SAMPLES)
            _mm512_storeu_si512(sums[c] + i, sum_of(near[c] + i, far[c] + i));
        sums[c][-1] = sums[c][0];
        sums[c][count] = sums[c][count - 1];
    }
}

VBMI void ycc_row(const uint8_t *luma, const YccSums sums, int32_t width, uint8_t *rgb) {
    const __m512i low_bytes = _mm512_set1_epi16(0xFF);
    for (int32_t x = 0; x < width; x += YCC_PIXELS, rgb += 3 * YCC_PIXELS) {
        __m512i cb[2], cr[2], bytes = _mm512_loadu_si512(luma + x);
        upsample(sums[0] + x / 2, &cb[0], &cb[1]);
        upsample(sums[1] + x / 2, &cr[0], &cr[1]);
        __m512i even[3], odd[3], packed[3];
        colour(_mm512_and_si512(bytes, low_bytes), cb[0], cr[0], even);
        colour(_mm512_srli_epi16(bytes, 8), cb[1], cr[1], odd);
        for (int c = 0; c < 3; c++) packed[c] = _mm512_packus_epi16(even[c], odd[c]);
        for (int i = 0; i < 3; i++) {
            __m512i from = _mm512_loadu_si512(FROMS[i]);
            __m512i out = _mm512_permutex2var_epi8(packed[0], from, packed[1]);
            out = _mm512_mask_permutexvar_epi8(out, BLUES[i], from, packed[2]);
            _mm512_storeu_si512(rgb + 64 * i, out);
        }
    }
}
#endif
