/* resize_variants: rows resized by each processor's own code against the plain one.
 *
 * Prints which kinds of code were compared; ends with 1 at the first difference. */
#include "fuzz.h"

#include "resize.c" /* For what is static. */

enum { ROUNDS = 1000, WIDEST = 300 };

int vectors_are_used = 1;

/* Memory of just that size, so that the sanitizer sees every byte too many. */
static void *noise(size_t bytes) {
    uint8_t *memory = malloc(bytes);
    if (memory == NULL) exit(3);
    for (size_t i = 0; i < bytes; i++) memory[i] = (uint8_t)draw(256);
    return memory;
}

/* As there are in a row that was resized along the horizontal axis. */
static int16_t lane(void) {
    return (int16_t)draw((255 * WEIGHT_ONE >> 4) + 1);
}

static void check(const void *found, const void *expected, size_t bytes, const char *what) {
    if (memcmp(found, expected, bytes) == 0) return;
    fprintf(stderr, "another result: %s\n", what);
    exit(1);
}

/* Up to which eight the rows were resized by eights. */
static int32_t compare_horizontally(int32_t length, int32_t width) {
    uint8_t *pixels = noise(3 * (size_t)length + ROW_MARGIN);
    Tap *taps = noise((size_t)width * sizeof(Tap));
    Eight *eights = aligned_alloc(64, (size_t)(width / 8 + 1) * sizeof(Eight));
    size_t bytes = 4 * (size_t)width * sizeof(int16_t);
    int16_t *expected = noise(bytes), *found = noise(bytes);
    if (eights == NULL) exit(3);
    taps_fill(taps, length, width, 0, width);
    if (draw(2))
        for (int32_t i = 0; i < width / 2; i++) {
            Tap other = taps[i];
            taps[i] = taps[width - 1 - i];
            taps[width - 1 - i] = other;
        }
    horizontally(pixels, taps, width, expected);
    resize_horizontally(pixels, taps, width, eights, 0, found);
    check(found, expected, bytes, "horizontally, by taps");
    int32_t count = eights_fill(eights, taps, width);
    resize_horizontally(pixels, taps, width, eights, count, found);
    check(found, expected, bytes, "horizontally, by eights");
    free(pixels), free(taps), free(eights), free(expected), free(found);
    return count;
}

static void compare_vertically(int32_t width) {
    size_t bytes = 4 * (size_t)width * sizeof(int16_t);
    int16_t *above = noise(bytes), *below = noise(bytes);
    for (int32_t i = 0; i < 4 * width; i++)
        above[i] = lane(), below[i] = lane();
    int16_t second = (int16_t)draw(WEIGHT_ONE + 1), weight[2] = {WEIGHT_ONE - second, second};
    uint8_t *expected = noise(3 * (size_t)width), *found = noise(3 * (size_t)width);
    vertically(above, below, weight, width, expected);
    resize_vertically(above, below, weight, width, found);
    check(found, expected, 3 * (size_t)width, "vertically");
#ifdef HAVE_X86
    if (__builtin_cpu_supports("ssse3")) {
        vertically_ssse3(above, below, weight, width, found);
        check(found, expected, 3 * (size_t)width, "vertically, by fours");
    }
#endif
    free(above), free(below), free(expected), free(found);
}

int main(void) {
    int32_t eights = 0, some = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int32_t width = 1 + (int32_t)draw(WIDEST), length = 1 + (int32_t)draw(3 * WIDEST);
        int32_t count = compare_horizontally(length, width);
        eights += count;
        some += count < width / 8;
        compare_vertically(width);
    }
    printf("%d eights, %d rows of which not all were\n", (int)eights, (int)some);
    return 0;
}
