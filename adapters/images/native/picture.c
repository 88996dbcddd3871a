#include "picture.h"

#include <stdlib.h>

#include "jpeg/jpeg.h"
#include "raw.h"

struct Pictures {
    Decoder *decoder;
    Resizer *resizer;
};

/* No other kind begins with this byte. */
static int is_jpeg(const uint8_t *bytes, size_t size) {
    return size > 0 && bytes[0] == 0xFF;
}

int picture_is_reducible(const uint8_t *bytes, size_t size) {
    return is_jpeg(bytes, size);
}

int picture_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width) {
    return is_jpeg(bytes, size) ? jpeg_size(bytes, size, height, width)
                                : raw_size(bytes, size, height, width);
}

Pictures *pictures_new(void) {
    Pictures *pictures = calloc(1, sizeof *pictures);
    if (pictures == NULL) return NULL;
    pictures->decoder = decoder_new();
    pictures->resizer = resizer_new();
    if (pictures->decoder != NULL && pictures->resizer != NULL) return pictures;
    pictures_free(pictures);
    return NULL;
}

void pictures_free(Pictures *pictures) {
    if (pictures == NULL) return;
    decoder_free(pictures->decoder);
    resizer_free(pictures->resizer);
    free(pictures);
}

Outcome picture_decode(Pictures *pictures, const uint8_t *bytes, size_t size, const Crop *crop,
                       const Batch *batch) {
    return is_jpeg(bytes, size) ? decoder_decode(pictures->decoder, bytes, size, crop, batch)
                                : raw_resize(pictures->resizer, bytes, size, crop, batch);
}
