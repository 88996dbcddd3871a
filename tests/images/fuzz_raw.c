/* fuzz_raw SEED COUNT FILE...: size and resize mutants of raw pictures, with any crops,
 * under the compiler's sanitizers.
 *
 * Prints a line for each: "done" or "left". */
#include <string.h>

#include "fuzz.h"

#include "raw.h"

/* Another size of a raw picture, with the blanks that the header then has more or fewer. */
static void resize_npy(uint8_t *picture, size_t *bytes) {
    uint32_t height = 1 + draw(70), width = 1 + draw(100), channels = draw(2) ? 3 : 1;
    size_t length = picture[8] | (size_t)picture[9] << 8;
    if (10 + length > *bytes || length < 80) return;
    char text[160];
    int written = snprintf(text, sizeof text,
                           "{'descr': '|u1', 'fortran_order': False, 'shape': (%u, %u%s), }", height,
                           width, channels == 3 ? ", 3" : draw(2) ? ", 1" : "");
    if ((size_t)written >= length) return;
    memset(picture + 10, ' ', length - 1);
    memcpy(picture + 10, text, (size_t)written);
    size_t size = 10 + length + (size_t)height * width * channels;
    if (size <= *bytes) *bytes = size;
}

/* A copy in memory of its own size, so that no byte behind it can be read unnoticed. */
static uint8_t *mutant(uint8_t *picture, size_t *bytes) {
    if (draw(3) == 0) resize_npy(picture, bytes);
    if (draw(8) == 0) *bytes -= draw((uint32_t)*bytes);
    uint8_t *copy = malloc(*bytes);
    if (copy == NULL) exit(3);
    memcpy(copy, picture, *bytes);
    for (uint32_t changes = draw(3) ? 0 : draw(4); changes && *bytes; changes--) {
        uint32_t at = draw(draw(2) ? 20 : 130) % (uint32_t)*bytes;
        copy[at] = (uint8_t)(draw(2) ? copy[at] ^ 1u << draw(8) : draw(256));
    }
    return copy;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    start(arguments[1]);
    long images = strtol(arguments[2], NULL, 10);
    static uint8_t content[1 << 20];
    float table[3 * 256] = {0};
    Workspace workspace = {0};
    for (long i = 0; i < images; i++) {
        size_t bytes = read_any(count - 3, arguments + 3, content, sizeof content);
        uint8_t *picture = mutant(content, &bytes);
        Batch batch = {.rows = 1, .height = 1 + (int32_t)draw(40), .width = 1 + (int32_t)draw(90)};
        batch.channels_first = (int)draw(2);
        batch.table = draw(2) ? table : NULL;
        size_t item = batch.table ? sizeof(float) : 1;
        batch.start = malloc(3 * item * (size_t)batch.height * (size_t)batch.width);
        if (batch.start == NULL) return 3;
        int32_t height = 75, width = 103;
        if (raw_size(picture, bytes, &height, &width) &&
            (height < 1 || width < 1 || (int64_t)height * width > MOST_PIXELS))
            return 4;
        Crop crop = {.row = draw(50) ? 0 : draw_number(), .factor = draw(50) ? 1 : draw_number()};
        crop.height = draw(50) ? height : draw_number();
        crop.width = draw(50) ? width : draw_number();
        crop.vertical = draw_axis(height, batch.height, 20);
        crop.horizontal = draw_axis(width, batch.width, 20);
        crop.flip = (int32_t)draw(2);
        puts(raw_resize(&workspace, picture, bytes, &crop, &batch) == DECODED ? "done" : "left");
        free(batch.start);
        free(picture);
    }
    workspace_free(&workspace);
    return 0;
}
