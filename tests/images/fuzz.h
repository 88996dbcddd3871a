/* What the fuzzing programs draw, and read. */
#ifndef ADAPTERS_FUZZ_H
#define ADAPTERS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "batch.h"

static uint64_t state = 88172645463325252ULL;

static inline void start(const char *seed) {
    state = strtoull(seed, NULL, 10) * 2654435761u + 1;
}

static inline uint32_t draw(uint32_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return below ? (uint32_t)((state * 0x2545F4914F6CDD1DULL) >> 32) % below : 0;
}

static inline int32_t draw_number(void) {
    static const int32_t odd[] = {-1, 0, 1, 7, 8, 9, INT32_MAX, INT32_MIN};
    return draw(20) ? (int32_t)draw(120) : odd[draw(8)];
}

/* One in `wrong` fits nothing. */
static inline Axis draw_axis(int32_t pixels, int32_t goal, uint32_t wrong) {
    Axis axis;
    if (draw(wrong) == 0) return (Axis){draw_number(), draw_number(), draw_number(), draw_number()};
    axis.begin = (int32_t)draw((uint32_t)pixels);
    axis.length = 1 + (int32_t)draw((uint32_t)(pixels - axis.begin));
    axis.offset = (int32_t)draw(20);
    axis.resized = axis.offset + goal + (int32_t)draw(20);
    return axis;
}

/* One of the files; returns its size. */
static inline size_t read_any(int count, char **paths, uint8_t *content, size_t most) {
    FILE *file = fopen(paths[draw((uint32_t)count)], "rb");
    if (file == NULL) exit(3);
    size_t bytes = fread(content, 1, most, file);
    fclose(file);
    return bytes;
}

#endif
