/* fuzz SEED COUNT FILE...: size and decode mutants of JPEGs, with any crops, under the compiler's sanitizers;
 * a third of the crops are those of an ImageDecoder, for whatever size the mutant says that it has.
 *
 * Prints a line for each: a number made of what was decoded, or "left". As in the kernel, ADAPTERS_VECTORS=0
 * in the environment leaves plain C. */
#include <math.h>
#include <string.h>

#include "fuzz.h"

#include "crops.h"
#include "jpeg/jpeg.h"
#include "vectors.h"

/* A copy in memory of its own size, so that no byte behind it can be read unnoticed. */
static uint8_t *mutant(const uint8_t *jpeg, size_t *bytes) {
    if (draw(4) == 0 && *bytes > 8) *bytes -= draw((uint32_t)*bytes - 4);
    uint8_t *copy = malloc(*bytes);
    if (copy == NULL) exit(3);
    memcpy(copy, jpeg, *bytes);
    for (uint32_t changes = draw(6); changes; changes--) {
        uint32_t at = draw(draw(2) ? (uint32_t)*bytes : 700) % (uint32_t)*bytes;
        if (draw(2))
            copy[at] ^= (uint8_t)(1u << draw(8));
        else
            copy[at] = (uint8_t)draw(256);
    }
    if (draw(16)) copy[*bytes - 2] = 0xFF, copy[*bytes - 1] = 0xD9;
    return copy;
}

static uint64_t digest(const uint8_t *bytes, size_t count) { /* FNV-1a */
    uint64_t hash = 0xCBF29CE484222325ULL;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
    return hash;
}

static double draw_double(void) {
    static const double odd[] = {0, -1, 1e-300, 1e300, INFINITY, -INFINITY, NAN, 5e-324};
    return draw(20) ? (draw(200) + 1) / 100.0 : odd[draw(8)];
}

static Asked draw_asked(void) {
    Asked asked = {.cut = draw(50) ? (int32_t)draw(4) : draw_number(), .flip = (int)draw(2)};
    asked.resize_short = draw(2) ? 0 : draw_number();
    for (int i = 0; i < 2; i++) {
        asked.area[i] = draw_double() / 2, asked.ratio[i] = draw_double();
        asked.log_ratio[i] = log(asked.ratio[i]);
    }
    return asked;
}

static Seed draw_seed(void) {
    Seed seed;
    for (int i = 0; i < 4; i++) seed.counter[i] = draw(9) ? draw(99) : UINT64_MAX;
    seed.key[0] = draw(99), seed.key[1] = UINT64_MAX - draw(99);
    return seed;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const char *wanted = getenv("ADAPTERS_VECTORS");
    vectors_are_used = wanted == NULL || strcmp(wanted, "0") != 0;
    start(arguments[1]);
    long images = strtol(arguments[2], NULL, 10);
    static uint8_t content[1 << 20];
    float table[3 * 256] = {0};
    Decoder *decoder = decoder_new();
    if (decoder == NULL) return 3;
    for (long i = 0; i < images; i++) {
        size_t bytes = read_any(count - 3, arguments + 3, content, sizeof content);
        uint8_t *jpeg = mutant(content, &bytes);
        Batch batch = {.rows = 1, .height = 1 + (int32_t)draw(40), .width = 1 + (int32_t)draw(40)};
        batch.channels_first = (int)draw(2);
        batch.table = draw(2) ? table : NULL;
        size_t item = batch.table ? sizeof(float) : 1;
        size_t row = 3 * item * (size_t)batch.height * (size_t)batch.width;
        batch.start = malloc(row);
        if (batch.start == NULL) return 3;
        Crop crop = {.row = draw(50) ? 0 : draw_number(), .factor = 1 << draw(4)};
        crop.height = draw(50) ? 75 : draw_number(), crop.width = draw(50) ? 103 : draw_number();
        crop.vertical = draw_axis((75 + crop.factor - 1) / crop.factor, batch.height, 8);
        crop.horizontal = draw_axis((103 + crop.factor - 1) / crop.factor, batch.width, 8);
        crop.flip = (int32_t)draw(2);
        if (draw(50) == 0) crop.factor = draw_number();
        int32_t height, width;
        if (jpeg_size(jpeg, bytes, &height, &width)) {
            if (height < 1 || width < 1) return 4;
            Asked asked = draw_asked();
            Seed seed = draw_seed();
            if (draw(3) == 0 && crop_of(&asked, &seed, height, width, 1, &batch, &crop)) crop.row = 0;
        }
        if (decoder_decode(decoder, jpeg, bytes, &crop, &batch) == DECODED)
            printf("%016llx\n", (unsigned long long)digest(batch.start, row));
        else
            puts("left");
        free(batch.start);
        free(jpeg);
    }
    decoder_free(decoder);
    return 0;
}
