#include "yuv.h"

#include "vectors.h"

#include <math.h>
#include <string.h>

#ifdef HAVE_X86
#include <immintrin.h>
#define SSSE3 __attribute__((target("ssse3")))
#endif

enum {
    WEIGHT_ONE = 1 << 11,
    MIDDLE = 128 << 3,
    /* Of 2^15; GCC makes pmulhrsw only of what is more than half of that. */
    RED_V = 19595,
    GREEN_U = 21491,
    GREEN_V = 23401,
    BLUE_U = 25297,
};

void half_taps_fill(Tap *taps, int32_t begin, int32_t length, int32_t resized, int32_t offset,
                    int32_t count, int32_t plane) {
    double scale = 1.0 / ((double)resized / length);
    for (int32_t i = 0; i < count; i++) {
        double place = ((double)i + offset + 0.5) * scale - 0.5;
        if (place < 0) place = 0;
        if (place > length - 1) place = length - 1;
        place = (begin + place) * 0.5 - 0.25;
        if (place < 0) place = 0;
        int32_t at = (int32_t)place;
        float rest = (float)(place - at);
        if (at >= plane - 1) {
            at = plane - 1;
            rest = 0;
        }
        taps[i].at = at;
        taps[i].weight[0] = (int16_t)lrintf((1.0f - rest) * WEIGHT_ONE);
        taps[i].weight[1] = (int16_t)lrintf(rest * WEIGHT_ONE);
    }
}

static void horizontally(const uint8_t *pixels, const Tap *taps, int32_t width, int16_t *out) {
    for (int32_t i = 0; i < width; i++) {
        const uint8_t *left = pixels + taps[i].at;
        out[i] = (int16_t)((left[0] * taps[i].weight[0] + left[1] * taps[i].weight[1]) >> 4);
    }
}

INLINE int16_t rounded(int16_t a, int16_t b) {
    return (int16_t)((((int32_t)a * b >> 14) + 1) >> 1);
}

INLINE int16_t between(const int16_t *above, const int16_t *below, const int16_t weight[2],
                       int32_t i) {
    return (int16_t)(rounded(above[i], weight[0]) + rounded(below[i], weight[1]));
}

INLINE uint8_t level(int16_t value) {
    value = (int16_t)((int16_t)(value + 4) >> 3);
    value = value < 0 ? 0 : value;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* For the compiler to make vectors of, for each kind of processor. */
INLINE void to_rgb(const Between *rows, int32_t width, uint8_t *restrict red,
                   uint8_t *restrict green, uint8_t *restrict blue) {
    const int16_t *y[2] = {rows->y[0], rows->y[1]}, *u[2] = {rows->u[0], rows->u[1]};
    const int16_t *v[2] = {rows->v[0], rows->v[1]};
    const int16_t luma[2] = {rows->luma[0], rows->luma[1]};
    const int16_t chroma[2] = {rows->chroma[0], rows->chroma[1]};
    for (int32_t i = 0; i < width; i++) {
        int16_t light = between(y[0], y[1], luma, i);
        int16_t cb = (int16_t)(between(u[0], u[1], chroma, i) - MIDDLE);
        int16_t cr = (int16_t)(between(v[0], v[1], chroma, i) - MIDDLE);
        red[i] = level((int16_t)(light + 2 * cr - rounded(cr, RED_V)));
        green[i] = level((int16_t)(light - cb + rounded(cb, GREEN_U) - rounded(cr, GREEN_V)));
        blue[i] = level((int16_t)(light + cb + rounded(cb, BLUE_U)));
    }
}

INLINE void to_grey(const Between *rows, int32_t width, uint8_t *restrict grey) {
    for (int32_t i = 0; i < width; i++) {
        /* As RGB pixels of one grey would be resized: resize.c. */
        int high = (rows->y[0][i] * rows->luma[0]) >> 16;
        int low = (rows->y[1][i] * rows->luma[1]) >> 16;
        grey[i] = (uint8_t)((high + low + 2) >> 2);
    }
}

static void interleave_one_by_one(const uint8_t *red, const uint8_t *green, const uint8_t *blue,
                                  int32_t width, uint8_t *out) {
    for (int32_t i = 0; i < width; i++) {
        out[3 * i] = red[i];
        out[3 * i + 1] = green[i];
        out[3 * i + 2] = blue[i];
    }
}

#ifdef HAVE_X86
SSSE3 static void horizontally_ssse3(const uint8_t *pixels, const Quad *quads, int32_t count,
                                     int16_t *out) {
    for (int32_t i = 0; i < count; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(pixels + quads[i].at));
        __m128i places = _mm_load_si128((const __m128i *)quads[i].places);
        __m128i weights = _mm_loadu_si128((const __m128i *)quads[i].weights);
        __m128i sums = _mm_madd_epi16(_mm_shuffle_epi8(bytes, places), weights);
        sums = _mm_srai_epi32(sums, 4);
        _mm_storel_epi64((__m128i *)(out + 4 * i), _mm_packs_epi32(sums, sums));
    }
}

VBMI static void horizontally_vbmi(const uint8_t *pixels, const Sixteen *sixteens, int32_t count,
                                   int16_t *out) {
    for (int32_t i = 0; i < count; i++) {
        __m512i bytes = _mm512_loadu_si512(pixels + sixteens[i].at);
        __m512i places = _mm512_load_si512(sixteens[i].places);
        /* A byte of a pair is 16 bits. */
        __m512i pairs = _mm512_maskz_permutexvar_epi8(0x5555555555555555, places, bytes);
        __m512i sums = _mm512_madd_epi16(pairs, _mm512_load_si512(sixteens[i].weights));
        _mm256_storeu_si256((__m256i *)(out + 16 * i),
                            _mm512_cvtepi32_epi16(_mm512_srai_epi32(sums, 4)));
    }
}

SSSE3 static void to_rgb_ssse3(const Between *rows, int32_t width, uint8_t *red, uint8_t *green,
                               uint8_t *blue) {
    to_rgb(rows, width, red, green, blue);
}

AVX2 static void to_rgb_avx2(const Between *rows, int32_t width, uint8_t *red, uint8_t *green,
                             uint8_t *blue) {
    to_rgb(rows, width, red, green, blue);
}

VBMI static void to_rgb_vbmi(const Between *rows, int32_t width, uint8_t *red, uint8_t *green,
                             uint8_t *blue) {
    to_rgb(rows, width, red, green, blue);
}

SSSE3 static void interleave_ssse3(const uint8_t *red, const uint8_t *green, const uint8_t *blue,
                                   int32_t width, uint8_t *out) {
/* Of which pixel a channel's byte comes, where it is this one's turn; -1 where it isn't. */
#define TURN(i, c, at) ((16 * (at) + (i)) % 3 == (c) ? (16 * (at) + (i)) / 3 : -1)
#define FOUR(i, c, at) TURN(i, c, at), TURN(i + 1, c, at), TURN(i + 2, c, at), TURN(i + 3, c, at)
#define PLACES(c, at) \
    _mm_setr_epi8(FOUR(0, c, at), FOUR(4, c, at), FOUR(8, c, at), FOUR(12, c, at))
    const __m128i places[3][3] = {{PLACES(0, 0), PLACES(1, 0), PLACES(2, 0)},
                                  {PLACES(0, 1), PLACES(1, 1), PLACES(2, 1)},
                                  {PLACES(0, 2), PLACES(1, 2), PLACES(2, 2)}};
    int32_t i = 0;
    for (; i + 16 <= width; i += 16) {
        __m128i r = _mm_loadu_si128((const __m128i *)(red + i));
        __m128i g = _mm_loadu_si128((const __m128i *)(green + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(blue + i));
        for (int at = 0; at < 3; at++) {
            __m128i rg = _mm_or_si128(_mm_shuffle_epi8(r, places[at][0]),
                                      _mm_shuffle_epi8(g, places[at][1]));
            __m128i rgb = _mm_or_si128(rg, _mm_shuffle_epi8(b, places[at][2]));
            _mm_storeu_si128((__m128i *)(out + 3 * i + 16 * at), rgb);
        }
    }
    interleave_one_by_one(red + i, green + i, blue + i, width - i, out + 3 * i);
}

/* Whether the taps' pixels are within so many bytes; from which one on, in `from`. */
static int is_within(const Tap *taps, int32_t count, int32_t bytes, int32_t *from) {
    int32_t first = taps[0].at, last = taps[count - 1].at;
    *from = first < last ? first : last;
    return first + last - 2 * *from + 2 <= bytes;
}

static void picks_fill(const Tap *taps, int32_t count, int32_t from, uint8_t *places,
                       int16_t *weights) {
    memset(places, 0x80, 4 * (size_t)count); /* No byte. */
    for (int32_t i = 0; i < count; i++) {
        places[4 * i] = (uint8_t)(taps[i].at - from);
        places[4 * i + 2] = (uint8_t)(places[4 * i] + 1);
        memcpy(weights + 2 * i, taps[i].weight, sizeof taps[i].weight);
    }
}
#endif

void across_fill(Across *across) {
    across->sixteens_count = across->quads_count = 0;
#ifdef HAVE_X86
    const Tap *taps = across->taps, *end = taps + across->width;
    for (; has_vbmi() && end - taps >= 16; taps += 16) {
        Sixteen *sixteen = &across->sixteens[across->sixteens_count];
        if (!is_within(taps, 16, 64, &sixteen->at)) break;
        picks_fill(taps, 16, sixteen->at, sixteen->places, sixteen->weights);
        across->sixteens_count++;
    }
    for (; SUPPORTS("ssse3") && end - taps >= 4; taps += 4) {
        Quad *quad = &across->quads[across->quads_count];
        if (!is_within(taps, 4, 16, &quad->at)) break;
        picks_fill(taps, 4, quad->at, quad->places, quad->weights);
        across->quads_count++;
    }
#endif
}

void plane_horizontally(const uint8_t *pixels, const Across *across, int16_t *out) {
    int32_t done = 0;
#ifdef HAVE_X86
    if (across->sixteens_count) {
        horizontally_vbmi(pixels, across->sixteens, across->sixteens_count, out);
        done += 16 * across->sixteens_count;
    }
    if (across->quads_count) {
        horizontally_ssse3(pixels, across->quads, across->quads_count, out + done);
        done += 4 * across->quads_count;
    }
#endif
    horizontally(pixels, across->taps + done, across->width - done, out + done);
}

void yuv_vertically(const Between *rows, int32_t width, uint8_t *red, uint8_t *green,
                    uint8_t *blue) {
#ifdef HAVE_X86
    if (has_vbmi()) {
        to_rgb_vbmi(rows, width, red, green, blue);
        return;
    }
    if (SUPPORTS("avx2")) {
        to_rgb_avx2(rows, width, red, green, blue);
        return;
    }
    if (SUPPORTS("ssse3")) {
        to_rgb_ssse3(rows, width, red, green, blue);
        return;
    }
#endif
    to_rgb(rows, width, red, green, blue);
}

void grey_vertically(const Between *rows, int32_t width, uint8_t *grey) {
    to_grey(rows, width, grey);
}

void interleave(const uint8_t *red, const uint8_t *green, const uint8_t *blue, int32_t width,
                uint8_t *out) {
#ifdef HAVE_X86
    if (SUPPORTS("ssse3")) {
        interleave_ssse3(red, green, blue, width, out);
        return;
    }
#endif
    interleave_one_by_one(red, green, blue, width, out);
}
