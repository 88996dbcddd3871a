#include "resize.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_SSSE3 1
#include <immintrin.h>
#endif

enum { WEIGHT_ONE = 1 << 11 };

void taps_fill(Tap *taps, int32_t length, int32_t resized, int32_t offset, int32_t count) {
    double scale = 1.0 / ((double)resized / length);
    for (int32_t i = 0; i < count; i++) {
        float place = (float)(((double)i + offset + 0.5) * scale - 0.5);
        int32_t at = (int32_t)floorf(place);
        place -= (float)at;
        if (at < 0) {
            at = 0;
            place = 0;
        }
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

#ifdef HAVE_SSSE3
__attribute__((target("ssse3"))) static __m128i one_pixel(const uint8_t *pixels, const Tap *tap) {
    /* Of six bytes, r g b r' g' b', the pairs that the weights belong to. */
    const __m128i pairs = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    int32_t weights;
    __builtin_memcpy(&weights, tap->weight, sizeof weights);
    __m128i six = _mm_loadl_epi64((const __m128i *)(pixels + 3 * (ptrdiff_t)tap->at));
    __m128i sums = _mm_madd_epi16(_mm_shuffle_epi8(six, pairs), _mm_set1_epi32(weights));
    return _mm_srai_epi32(sums, 4);
}

__attribute__((target("ssse3"))) static void horizontally_ssse3(const uint8_t *pixels,
                                                                const Tap *taps, int32_t width,
                                                                int16_t *out) {
    int32_t i = 0;
    for (; i + 2 <= width; i += 2) {
        __m128i two = _mm_packs_epi32(one_pixel(pixels, taps + i), one_pixel(pixels, taps + i + 1));
        _mm_storeu_si128((__m128i *)(out + 4 * i), two);
    }
    if (i < width) horizontally(pixels, taps + i, width - i, out + 4 * i);
}

__attribute__((target("ssse3"))) static void vertically_ssse3(const int16_t *above,
                                                              const int16_t *below,
                                                              const int16_t weight[2],
                                                              int32_t width, uint8_t *out) {
    const __m128i first = _mm_set1_epi16(weight[0]), second = _mm_set1_epi16(weight[1]);
    const __m128i half = _mm_set1_epi16(2);
    const __m128i rgb = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int32_t i = 0;
    for (; i + 4 <= width; i += 4) {
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
#endif

void resize_horizontally(const uint8_t *pixels, const Tap *taps, int32_t width, int16_t *out) {
#ifdef HAVE_SSSE3
    if (__builtin_cpu_supports("ssse3")) {
        horizontally_ssse3(pixels, taps, width, out);
        return;
    }
#endif
    horizontally(pixels, taps, width, out);
}

void resize_vertically(const int16_t *above, const int16_t *below, const int16_t weight[2],
                       int32_t width, uint8_t *out) {
#ifdef HAVE_SSSE3
    if (__builtin_cpu_supports("ssse3")) {
        vertically_ssse3(above, below, weight, width, out);
        return;
    }
#endif
    vertically(above, below, weight, width, out);
}
