#include "raw.h"

#include <string.h>

/* Rows that are fetched ahead into the cache. */
enum { ROWS_AHEAD = 8 };

typedef struct {
    int32_t height, width;
    size_t channels;      /* 1 or 3. */
    const uint8_t *start; /* Of the pixels. */
    const uint8_t *end;   /* Of all bytes. */
} Image;

static uint32_t number_at(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Step over a text; 0 where there is another one. */
static int is_text(const char **at, const char *end, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(end - *at) < length || memcmp(*at, text, length) != 0) return 0;
    *at += length;
    return 1;
}

/* Step over a decimal number; 0 where there is none, one of more than nine digits, or one that
 * begins with a 0, which Python takes for none. */
static uint32_t decimal(const char **at, const char *end) {
    uint32_t number = 0;
    for (int digits = 0; *at < end && **at >= '0' && **at <= '9'; digits++, ++*at) {
        if (digits == 9 || (digits > 0 && number == 0)) return 0;
        number = 10 * number + (uint32_t)(**at - '0');
    }
    return number;
}

/* An array as np.save writes it; another header may be as good, which others will see. */
static int is_npy(const uint8_t *bytes, size_t size, Image *image) {
    if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0) return 0;
    size_t begin = bytes[6] > 1 ? 12 : 10;
    size_t length = bytes[6] > 1 ? number_at(bytes + 8) : bytes[8] | (size_t)bytes[9] << 8;
    if (length > size - begin) return 0;
    const char *at = (const char *)bytes + begin, *end = at + length;
    if (!is_text(&at, end, "{'descr': '|u1', 'fortran_order': False, 'shape': (")) return 0;
    uint32_t height = decimal(&at, end);
    if (!is_text(&at, end, ", ")) return 0;
    uint32_t width = decimal(&at, end), channels = 1;
    if (is_text(&at, end, ", ")) channels = decimal(&at, end);
    if (!is_text(&at, end, "), }") || (channels != 1 && channels != 3)) return 0;
    while (at < end && *at == ' ') at++;
    if (!is_text(&at, end, "\n") || at != end) return 0;
    uint64_t pixels = (uint64_t)height * width;
    if (pixels == 0 || pixels > MOST_PIXELS || size - begin - length != pixels * channels) return 0;
    image->height = (int32_t)height, image->width = (int32_t)width;
    image->channels = channels;
    image->start = bytes + begin + length, image->end = bytes + size;
    return 1;
}

int raw_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width) {
    Image image;
    if (!is_npy(bytes, size, &image)) return 0;
    *height = image.height, *width = image.width;
    return 1;
}

/* Have bytes that will be read soon brought into the cache. */
static void fetch_ahead(const uint8_t *row, size_t stride, size_t first, size_t last,
                        const uint8_t *end) {
    const uint8_t *ahead = row + ROWS_AHEAD * stride;
    if ((size_t)(end - row) <= ROWS_AHEAD * stride + last) return;
#ifdef __GNUC__
    for (size_t at = first; at < last + LINE; at += LINE) __builtin_prefetch(ahead + at);
#endif
}

typedef struct {
    const Image *image;
    uint8_t *line; /* A row as RGB, with a margin. */
    size_t first, last; /* The pixels of a row that are used. */
} Source;

static const uint8_t *row_of(void *given, int32_t y) {
    const Source *source = given;
    const Image *image = source->image;
    size_t channels = image->channels, bytes = channels * (size_t)image->width;
    const uint8_t *row = image->start + (size_t)y * bytes;
    uint8_t *line = source->line;
    fetch_ahead(row, bytes, channels * source->first, channels * source->last, image->end);
    if (channels == 1) {
        for (size_t x = source->first; x < source->last; x++)
            line[3 * x] = line[3 * x + 1] = line[3 * x + 2] = row[x];
        return line;
    }
    /* Bytes behind the last row may not be read. */
    return (size_t)(image->end - row) >= bytes + ROW_MARGIN ? row : memcpy(line, row, bytes);
}

Outcome raw_resize(Workspace *workspace, const uint8_t *bytes, size_t size, const Crop *crop,
                   const Batch *batch) {
    Image image;
    const Axis *vertical = &crop->vertical, *horizontal = &crop->horizontal;
    if (crop->row < 0 || crop->row >= batch->rows || batch->width < 1 || batch->height < 1 ||
        crop->factor != 1 || !is_npy(bytes, size, &image) || crop->height != image.height ||
        crop->width != image.width || !axis_fits(vertical, image.height, batch->height) ||
        !axis_fits(horizontal, image.width, batch->width))
        return NOT_OURS;
    size_t line_bytes = 3 * (size_t)image.width + ROW_MARGIN;
    if (!workspace_prepare(workspace, batch, line_bytes)) return NO_MEMORY;
    Tap *across = workspace->taps, *down = across + batch->width;
    taps_fill(across, horizontal->length, horizontal->resized, horizontal->offset, batch->width);
    taps_fill(down, vertical->length, vertical->resized, vertical->offset, batch->height);
    for (int32_t x = 0; x < batch->width; x++) across[x].at += horizontal->begin;
    if (crop->flip) taps_turn(across, batch->width);
    Source source = {&image, workspace->pixels, (size_t)horizontal->begin,
                     (size_t)(horizontal->begin + horizontal->length)};
    rgb_rows(workspace, across, down, crop, batch, row_of, &source);
    return DECODED;
}
