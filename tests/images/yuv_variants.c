/* yuv_variants: rows of planes resized by each processor's own code against the plain one.
 *
 * Prints how much was compared; ends with 1 at the first difference. */
#include <stdio.h>
#include <stdlib.h>

#include "yuv.c" /* For what is static. */

enum { ROUNDS = 3000, WIDEST = 300 };

static uint64_t state = 88172645463325252ULL;

static uint32_t draw(uint32_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)((state * 0x2545F4914F6CDD1DULL) >> 32) % below;
}

/* Memory of just that size, so that the sanitizer sees every byte too many. */
static void *noise(size_t bytes) {
    uint8_t *memory = malloc(bytes);
    if (memory == NULL) exit(3);
    for (size_t i = 0; i < bytes; i++) memory[i] = (uint8_t)draw(256);
    return memory;
}

static void check(const void *found, const void *expected, size_t bytes, const char *what) {
    if (memcmp(found, expected, bytes) == 0) return;
    fprintf(stderr, "another result: %s\n", what);
    exit(1);
}

static void *aligned(size_t items, size_t bytes) {
    void *memory = aligned_alloc(64, (items + 1) * bytes / 64 * 64 + 64);
    if (memory == NULL) exit(3);
    return memory;
}

/* Up to which sixteen the rows were resized by sixteens. */
static int32_t compare_horizontally(int32_t length, int32_t width) {
    uint8_t *pixels = noise((size_t)length + ROW_MARGIN);
    Tap *taps = noise((size_t)width * sizeof(Tap));
    size_t bytes = (size_t)width * sizeof(int16_t);
    int16_t *expected = noise(bytes), *found = noise(bytes);
    Across across = {.taps = taps, .width = width};
    across.sixteens = aligned((size_t)width / 16, sizeof(Sixteen));
    across.quads = aligned((size_t)width / 4, sizeof(Quad));
    if (draw(2))
        taps_fill(taps, length, width, 0, width);
    else
        half_taps_fill(taps, (int32_t)draw(3), 2 * length - 3 < 1 ? 1 : 2 * length - 3, width, 0,
                       width, length);
    if (draw(2))
        for (int32_t i = 0; i < width / 2; i++) {
            Tap other = taps[i];
            taps[i] = taps[width - 1 - i];
            taps[width - 1 - i] = other;
        }
    horizontally(pixels, taps, width, expected);
    plane_horizontally(pixels, &across, found);
    check(found, expected, bytes, "horizontally, by taps");
    across_fill(&across);
    plane_horizontally(pixels, &across, found);
    check(found, expected, bytes, "horizontally, by sixteens");
    int32_t sixteens = across.sixteens_count;
#ifdef HAVE_X86
    across.sixteens_count = across.quads_count = 0; /* As where there are no sixteens. */
    for (const Tap *tap = taps; taps + width - tap >= 4; tap += 4, across.quads_count++) {
        Quad *quad = &across.quads[across.quads_count];
        if (!is_within(tap, 4, 16, &quad->at)) break;
        picks_fill(tap, 4, quad->at, quad->places, quad->weights);
    }
    if (__builtin_cpu_supports("ssse3")) {
        plane_horizontally(pixels, &across, found);
        check(found, expected, bytes, "horizontally, by quads");
    }
#endif
    free(pixels), free(taps), free(expected), free(found);
    free(across.sixteens), free(across.quads);
    return sixteens;
}

static void compare_vertically(int32_t width) {
    size_t bytes = (size_t)width * sizeof(int16_t);
    int16_t *lines[6];
    for (int i = 0; i < 6; i++) {
        lines[i] = noise(bytes);
        for (int32_t x = 0; x < width; x++) /* As there are in a row that was resized. */
            lines[i][x] = (int16_t)draw((255 * WEIGHT_ONE >> 4) + 1);
    }
    int16_t luma = (int16_t)draw(WEIGHT_ONE + 1), chroma = (int16_t)draw(WEIGHT_ONE + 1);
    Between rows = {.y = {lines[0], lines[1]}, .u = {lines[2], lines[3]}, .v = {lines[4], lines[5]}};
    rows.luma[0] = (int16_t)(WEIGHT_ONE - luma), rows.luma[1] = luma;
    rows.chroma[0] = (int16_t)(WEIGHT_ONE - chroma), rows.chroma[1] = chroma;
    uint8_t *expected[3], *found[3];
    for (int c = 0; c < 3; c++) expected[c] = noise((size_t)width), found[c] = noise((size_t)width);
    to_rgb(&rows, width, expected[0], expected[1], expected[2]);
    yuv_vertically(&rows, width, found[0], found[1], found[2]);
    for (int c = 0; c < 3; c++) check(found[c], expected[c], (size_t)width, "vertically");
#ifdef HAVE_X86
    if (__builtin_cpu_supports("ssse3")) {
        to_rgb_ssse3(&rows, width, found[0], found[1], found[2]);
        for (int c = 0; c < 3; c++) check(found[c], expected[c], (size_t)width, "with SSSE3");
    }
    if (__builtin_cpu_supports("avx2")) {
        to_rgb_avx2(&rows, width, found[0], found[1], found[2]);
        for (int c = 0; c < 3; c++) check(found[c], expected[c], (size_t)width, "with AVX2");
    }
#endif
    uint8_t *one = noise(3 * (size_t)width), *other = noise(3 * (size_t)width);
    interleave_one_by_one(expected[0], expected[1], expected[2], width, one);
    interleave(expected[0], expected[1], expected[2], width, other);
    check(other, one, 3 * (size_t)width, "interleaved");
    for (int i = 0; i < 6; i++) free(lines[i]);
    for (int c = 0; c < 3; c++) free(expected[c]), free(found[c]);
    free(one), free(other);
}

int main(void) {
    int32_t sixteens = 0, some = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int32_t width = 1 + (int32_t)draw(WIDEST), length = 2 + (int32_t)draw(6 * WIDEST);
        int32_t count = compare_horizontally(length, width);
        sixteens += count;
        some += count < width / 16;
        compare_vertically(width);
    }
    printf("%d sixteens, %d rows of which not all were\n", (int)sixteens, (int)some);
    return 0;
}
