#include "resize.h"

#include <math.h>
#include <string.h>

#include "vectors.h"

#ifdef HAVE_X86
#include <immintrin.h>
#define SSSE3 __attribute__((target("ssse3")))
#endif

enum { WEIGHT_ONE = 1 << 11 };

void taps_fill(Tap *taps, int32_t length, int32_t resized, int32_t offset, int32_t count) {
    double scale = 1.0 / ((double)resized / length);
    for (int32_t i = 0; i < count; i++) {
        float place = (float)(((double)i + offset + 0.5) * scale - 0.5);
        if (place < 0) place = 0;
        int32_t at = (int32_t)place;
        place -= (float)at;
        if (at >= length - 1) {
            at = length - 1;
            place = 0;
        }
        taps[i].at = at;
        taps[i].weight[0] = (int16_t)lrintf((1.0f - place) * WEIGHT_ONE);
        taps[i].weight[1] = (int16_t)lrintf(place * WEIGHT_ONE);
    }
}

static void horizontally(const uint8_t *pixels, const Tap *taps, int32_t width, int16_t *out) {
    for (int32_t i = 0; i < width; i++) {
        const uint8_t *left = pixels + 3 * (ptrdiff_t)taps[i].at, *right = left + 3;
        for (int c = 0; c < 3; c++)
            out[4 * i + c] =
                (int16_t)((left[c] * taps[i].weight[0] + right[c] * taps[i].weight[1]) >> 4);
        out[4 * i + 3] = 0;
    }
}

static void vertically(const int16_t *above, const int16_t *below, const int16_t weight[2],
                       int32_t width, uint8_t *out) {
    for (int32_t i = 0; i < width; i++)
        for (int c = 0; c < 3; c++) {
            int high = (above[4 * i + c] * weight[0]) >> 16;
            int low = (below[4 * i + c] * weight[1]) >> 16;
            out[3 * i + c] = (uint8_t)((high + low + 2) >> 2);
        }
}

#ifdef HAVE_X86
SSSE3 static __m128i one_pixel(const uint8_t *pixels, const Tap *tap) {
    /* Of six bytes, r g b r' g' b', the pairs that the weights belong to. */
    const __m128i pairs = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    int32_t weights;
    __builtin_memcpy(&weights, tap->weight, sizeof weights);
    __m128i six = _mm_loadl_epi64((const __m128i *)(pixels + 3 * (ptrdiff_t)tap->at));
    __m128i sums = _mm_madd_epi16(_mm_shuffle_epi8(six, pairs), _mm_set1_epi32(weights));
    return _mm_srai_epi32(sums, 4);
}

SSSE3 static void horizontally_ssse3(const uint8_t *pixels, const Tap *taps, int32_t width,
                                     int16_t *out) {
    int32_t i = 0;
    for (; i + 2 <= width; i += 2) {
        __m128i two = _mm_packs_epi32(one_pixel(pixels, taps + i), one_pixel(pixels, taps + i + 1));
        _mm_storeu_si128((__m128i *)(out + 4 * i), two);
    }
    if (i < width) horizontally(pixels, taps + i, width - i, out + 4 * i);
}

SSSE3 static void vertically_ssse3(const int16_t *above, const int16_t *below,
                                   const int16_t weight[2], int32_t width, uint8_t *out) {
    const __m128i first = _mm_set1_epi16(weight[0]), second = _mm_set1_epi16(weight[1]);
    const __m128i half = _mm_set1_epi16(2);
    const __m128i rgb = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int32_t i = 0;
    for (; i + 6 <= width; i += 4) { /* Four bytes more are written, the next pixels'. */
        __m128i halves[2];
        for (int h = 0; h < 2; h++) {
            __m128i a = _mm_loadu_si128((const __m128i *)(above + 4 * i + 8 * h));
            __m128i b = _mm_loadu_si128((const __m128i *)(below + 4 * i + 8 * h));
            __m128i sum = _mm_add_epi16(_mm_mulhi_epi16(a, first), _mm_mulhi_epi16(b, second));
            halves[h] = _mm_srai_epi16(_mm_add_epi16(sum, half), 2);
        }
        __m128i four = _mm_shuffle_epi8(_mm_packus_epi16(halves[0], halves[1]), rgb);
        _mm_storeu_si128((__m128i *)(out + 3 * i), four);
    }
    if (i < width) vertically(above + 4 * i, below + 4 * i, weight, width - i, out + 3 * i);
}

VBMI static void horizontally_vbmi(const uint8_t *pixels, const Eight *eights, int32_t count,
                                   int16_t *out) {
    /* A byte of a pair is 16 bits, and a pixel's fourth lane is 0. */
    const __mmask64 used = 0x0555055505550555;
    for (int32_t i = 0; i < count; i++) {
        __m512i bytes = _mm512_loadu_si512(pixels + 3 * (ptrdiff_t)eights[i].at), halves[2];
        for (int h = 0; h < 2; h++) {
            __m512i places = _mm512_loadu_si512(eights[i].places[h]);
            __m512i pairs = _mm512_maskz_permutexvar_epi8(used, places, bytes);
            __m512i sums = _mm512_madd_epi16(pairs, _mm512_loadu_si512(eights[i].weights[h]));
            halves[h] = _mm512_srai_epi32(sums, 4);
        }
        _mm512_storeu_si512(out + 32 * i, _mm512_packs_epi32(halves[0], halves[1]));
    }
}

VBMI static void vertically_vbmi(const int16_t *above, const int16_t *below,
                                 const int16_t weight[2], int32_t width, uint8_t *out) {
/* Where two pixels' r g b are. */
#define TWO(at) (at), (at) + 1, (at) + 2, (at) + 4, (at) + 5, (at) + 6
    static const uint8_t RGB[64] = {TWO(0), TWO(16), TWO(32), TWO(48),
                                    TWO(8), TWO(24), TWO(40), TWO(56)};
    const __m512i first = _mm512_set1_epi16(weight[0]), second = _mm512_set1_epi16(weight[1]);
    const __m512i half = _mm512_set1_epi16(2), rgb = _mm512_loadu_si512(RGB);
    int32_t i = 0;
    for (; i + 16 <= width; i += 16) {
        __m512i halves[2];
        for (int h = 0; h < 2; h++) {
            __m512i a = _mm512_loadu_si512(above + 4 * i + 32 * h);
            __m512i b = _mm512_loadu_si512(below + 4 * i + 32 * h);
            __m512i high = _mm512_mulhi_epi16(a, first), low = _mm512_mulhi_epi16(b, second);
            __m512i sum = _mm512_add_epi16(_mm512_add_epi16(high, low), half);
            halves[h] = _mm512_srai_epi16(sum, 2);
        }
        __m512i packed = _mm512_packus_epi16(halves[0], halves[1]);
        _mm512_mask_storeu_epi8(out + 3 * i, (1ULL << 48) - 1,
                                _mm512_permutexvar_epi8(rgb, packed));
    }
    /* GCC forgets this before a jump to another function, and all that follows would be slower. */
    _mm256_zeroupper();
    vertically_ssse3(above + 4 * i, below + 4 * i, weight, width - i, out + 3 * i);
}
#endif

int32_t eights_fill(Eight *eights, const Tap *taps, int32_t width) {
    int32_t count = 0;
#ifdef HAVE_X86
    for (; has_vbmi() && 8 * count + 8 <= width; count++, taps += 8) {
        Eight *eight = &eights[count];
        int32_t last = taps[0].at > taps[7].at ? taps[0].at : taps[7].at;
        eight->at = taps[0].at + taps[7].at - last;
        if (3 * (last - eight->at) + 6 > 64) break;
        for (int i = 0; i < 8; i++) {
            uint8_t *places = eight->places[i % 2] + 16 * (i / 2);
            for (int c = 0; c < 3; c++) {
                places[4 * c] = (uint8_t)(3 * (taps[i].at - eight->at) + c);
                places[4 * c + 2] = (uint8_t)(places[4 * c] + 3);
            }
            for (int lane = 0; lane < 4; lane++)
                memcpy(eight->weights[i % 2] + 8 * (i / 2) + 2 * lane, taps[i].weight, 4);
        }
    }
#else
    (void)eights, (void)taps, (void)width;
#endif
    return count;
}

void resize_horizontally(const uint8_t *pixels, const Tap *taps, int32_t width,
                         const Eight *eights, int32_t count, int16_t *out) {
#ifdef HAVE_X86
    if (count > 0) horizontally_vbmi(pixels, eights, count, out);
    taps += 8 * count, width -= 8 * count, out += 32 * count;
    if (SUPPORTS("ssse3")) {
        horizontally_ssse3(pixels, taps, width, out);
        return;
    }
#else
    (void)eights, (void)count;
#endif
    horizontally(pixels, taps, width, out);
}

void resize_vertically(const int16_t *above, const int16_t *below, const int16_t weight[2],
                       int32_t width, uint8_t *out) {
#ifdef HAVE_X86
    if (has_vbmi()) {
        vertically_vbmi(above, below, weight, width, out);
        return;
    }
    if (SUPPORTS("ssse3")) {
        vertically_ssse3(above, below, weight, width, out);
        return;
    }
#endif
    vertically(above, below, weight, width, out);
}
