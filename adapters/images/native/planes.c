#include "planes.h"

#include <stdlib.h>
#include <string.h>

#include "yuv.h"

/* How far ahead rows are fetched into the cache. */
enum { ROWS_AHEAD = 8 };

/* A picture's pixels: interleaved RGB, or one plane, or three of which two have half the size. */
typedef struct {
    int32_t height, width;
    enum { RGB, GREY, YUV } kind;
    const uint8_t *start[3]; /* Of the planes, or of the RGB pixels. */
    const uint8_t *end;      /* Of all bytes. */
} Picture;

struct Resizer {
    Workspace workspace;
    Tap *half_taps; /* Across and down in the planes of half the size. */
    Sixteen *sixteens[2];
    Quad *quads[2];
    int16_t *lines;    /* Two rows of each plane, resized along the horizontal axis. */
    uint8_t *channels; /* A row of each channel. */
    uint8_t *tail;     /* A row behind which there are bytes that may be read. */
    size_t half_taps_bytes, sixteens_bytes[2], quads_bytes[2], lines_bytes, channels_bytes,
        tail_bytes;
};

Resizer *resizer_new(void) {
    return calloc(1, sizeof(Resizer));
}

void resizer_free(Resizer *resizer) {
    if (resizer == NULL) return;
    workspace_free(&resizer->workspace);
    for (int i = 0; i < 2; i++) {
        free(resizer->sixteens[i]);
        free(resizer->quads[i]);
    }
    free(resizer->half_taps);
    free(resizer->lines);
    free(resizer->channels);
    free(resizer->tail);
    free(resizer);
}

static uint32_t number_at(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Pixels; 0 where there are none, or too many. */
static int64_t pixels_of(uint32_t height, uint32_t width) {
    uint64_t pixels = (uint64_t)height * width;
    return pixels <= MOST_PIXELS ? (int64_t)pixels : 0;
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
static int is_npy(const uint8_t *bytes, size_t size, Picture *picture) {
    if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0) return 0;
    size_t begin = bytes[6] > 1 ? 12 : 10;
    size_t length = bytes[6] > 1 ? number_at(bytes + 8) : bytes[8] | (size_t)bytes[9] << 8;
    if (length > size - begin) return 0;
    const char *at = (const char *)bytes + begin, *end = at + length;
    if (!is_text(&at, end, "{'descr': '|u1', 'fortran_order': False, 'shape': (")) return 0;
    uint32_t height = decimal(&at, end);
    if (!is_text(&at, end, ", ")) return 0;
    uint32_t width = decimal(&at, end), channels = 1;
    picture->kind = GREY;
    if (is_text(&at, end, ", ")) {
        channels = decimal(&at, end);
        if (channels == 3) picture->kind = RGB;
    }
    if (!is_text(&at, end, "), }") || (channels != 1 && channels != 3)) return 0;
    while (at < end && *at == ' ') at++;
    if (!is_text(&at, end, "\n") || at != end) return 0;
    int64_t pixels = pixels_of(height, width);
    if (pixels == 0 || size - begin - length != (size_t)pixels * channels) return 0;
    picture->height = (int32_t)height, picture->width = (int32_t)width;
    picture->start[0] = bytes + begin + length;
    return 1;
}

static int is_yuv(const uint8_t *bytes, size_t size, Picture *picture) {
    if (size < 16 || memcmp(bytes, "\x93YUV420\x01", 8) != 0) return 0;
    uint32_t height = number_at(bytes + 8), width = number_at(bytes + 12);
    int64_t pixels = pixels_of(height, width);
    if (pixels == 0) return 0;
    int64_t half = ((int64_t)height + 1) / 2 * (((int64_t)width + 1) / 2);
    if (size - 16 != (size_t)(pixels + 2 * half)) return 0;
    picture->kind = YUV;
    picture->height = (int32_t)height, picture->width = (int32_t)width;
    picture->start[0] = bytes + 16;
    picture->start[1] = picture->start[0] + pixels;
    picture->start[2] = picture->start[1] + half;
    return 1;
}

static int is_picture(const uint8_t *bytes, size_t size, Picture *picture) {
    picture->end = bytes + size;
    return is_yuv(bytes, size, picture) || is_npy(bytes, size, picture);
}

int planes_size(const uint8_t *bytes, size_t size, int32_t *height, int32_t *width) {
    Picture picture;
    if (!is_picture(bytes, size, &picture)) return 0;
    *height = picture.height, *width = picture.width;
    return 1;
}

/* So many bytes, with ROW_MARGIN behind them that may be read. */
static const uint8_t *with_margin(Resizer *resizer, const uint8_t *row, size_t bytes,
                                  const uint8_t *end) {
    if ((size_t)(end - row) >= bytes + ROW_MARGIN) return row;
    return memcpy(resizer->tail, row, bytes);
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
    Resizer *resizer;
    const Picture *picture;
    size_t first, last; /* Of the bytes that are used of a row. */
} Source;

static const uint8_t *row_of(void *given, int32_t y) {
    const Source *source = given;
    size_t bytes = 3 * (size_t)source->picture->width;
    const uint8_t *row = source->picture->start[0] + (size_t)y * bytes;
    fetch_ahead(row, bytes, source->first, source->last, source->picture->end);
    return with_margin(source->resizer, row, bytes, source->picture->end);
}

/* Whether there is memory for a row's planes. */
static int prepared(Resizer *resizer, const Picture *picture, const Batch *batch) {
    size_t width = (size_t)batch->width, height = (size_t)batch->height;
    size_t samples = picture->kind == RGB ? 3 : 1;
    if (!workspace_prepare(&resizer->workspace, batch) ||
        !grown((void **)&resizer->tail, &resizer->tail_bytes,
               samples * (size_t)picture->width + ROW_MARGIN))
        return 0;
    if (picture->kind == RGB) return 1;
    for (int i = 0; i < 2; i++)
        if (!grown((void **)&resizer->sixteens[i], &resizer->sixteens_bytes[i],
                   width / 16 * sizeof(Sixteen)) ||
            !grown((void **)&resizer->quads[i], &resizer->quads_bytes[i], width / 4 * sizeof(Quad)))
            return 0;
    return grown((void **)&resizer->half_taps, &resizer->half_taps_bytes,
                 (width + height) * sizeof(Tap)) &&
           grown((void **)&resizer->lines, &resizer->lines_bytes, 6 * width * sizeof(int16_t)) &&
           grown((void **)&resizer->channels, &resizer->channels_bytes, 3 * width);
}

/* One plane on its way to the row. */
typedef struct {
    const uint8_t *start, *end;
    size_t stride;      /* Which is its width. */
    size_t first, last; /* Of the bytes that are used of a row. */
    Across across;
    const Tap *down;
    int32_t begin;     /* What `down` counts from. */
    int16_t *lines[2]; /* By whether the row is even. */
    int32_t lined[2];  /* Which rows are there. */
} Plane;

/* Resize what row `i` of the batch is between, where that isn't done. */
static void between_rows(Resizer *resizer, Plane *plane, int32_t i, const int16_t *rows[2]) {
    int32_t above = plane->begin + plane->down[i].at;
    int32_t below = above + (plane->down[i].weight[1] != 0);
    for (int32_t y = above; y <= below; y++) {
        if (plane->lined[y & 1] == y) continue;
        const uint8_t *row = plane->start + (size_t)y * plane->stride;
        fetch_ahead(row, plane->stride, plane->first, plane->last, plane->end);
        row = with_margin(resizer, row, plane->stride, plane->end);
        plane_horizontally(row, &plane->across, plane->lines[y & 1]);
        plane->lined[y & 1] = y;
    }
    rows[0] = plane->lines[above & 1], rows[1] = plane->lines[below & 1];
}

/* Where the row of a channel goes if the batch has it as uint8 in a plane of its own. */
static uint8_t *channel_in(const Batch *batch, int32_t row, int32_t channel, int32_t y) {
    size_t line = ((size_t)row * 3 + (size_t)channel) * (size_t)batch->height + (size_t)y;
    return (uint8_t *)batch->start + line * (size_t)batch->width;
}

static void plane_rows(Resizer *resizer, Plane *planes, int32_t count, const Crop *crop,
                       const Batch *batch) {
    int has_planes = batch->channels_first && batch->table == NULL;
    int32_t width = batch->width;
    Between rows = {0};
    for (int32_t i = 0; i < batch->height; i++) {
        uint8_t *channels[3];
        for (int c = 0; c < 3; c++)
            channels[c] = has_planes ? channel_in(batch, crop->row, c, i)
                                     : resizer->channels + (size_t)c * (size_t)width;
        between_rows(resizer, &planes[0], i, rows.y);
        memcpy(rows.luma, planes[0].down[i].weight, sizeof rows.luma);
        if (count == 1) {
            grey_vertically(&rows, width, channels[0]);
            for (int c = 1; c < 3; c++) memcpy(channels[c], channels[0], (size_t)width);
        } else {
            between_rows(resizer, &planes[1], i, rows.u);
            between_rows(resizer, &planes[2], i, rows.v);
            memcpy(rows.chroma, planes[1].down[i].weight, sizeof rows.chroma);
            yuv_vertically(&rows, width, channels[0], channels[1], channels[2]);
        }
        if (has_planes) continue;
        uint8_t *line = line_in(batch, crop->row, i), *done = resizer->workspace.done;
        interleave(channels[0], channels[1], channels[2], width, line ? line : done);
        if (line == NULL) lay_out(done, batch, crop->row, i);
    }
}

static void resize_planes(Resizer *resizer, const Picture *picture, Tap *across, Tap *down,
                          const Crop *crop, const Batch *batch) {
    const Axis *vertical = &crop->vertical, *horizontal = &crop->horizontal;
    int32_t width = batch->width, height = batch->height;
    int32_t count = picture->kind == YUV ? 3 : 1;
    int32_t half_height = (picture->height + 1) / 2, half_width = (picture->width + 1) / 2;
    Plane planes[3];
    for (int32_t i = 0; i < count; i++) {
        Plane *plane = &planes[i];
        plane->start = picture->start[i], plane->end = picture->end;
        plane->stride = (size_t)(i ? half_width : picture->width);
        plane->first = (size_t)horizontal->begin >> (i > 0);
        plane->last = (size_t)(horizontal->begin + horizontal->length) >> (i > 0);
        plane->begin = i ? 0 : vertical->begin;
        plane->down = i ? resizer->half_taps + width : down;
        plane->lined[0] = plane->lined[1] = -1;
        for (int j = 0; j < 2; j++)
            plane->lines[j] = resizer->lines + (size_t)(2 * i + j) * (size_t)width;
    }
    planes[0].across = (Across){.taps = across,
                                .width = width,
                                .sixteens = resizer->sixteens[0],
                                .quads = resizer->quads[0]};
    across_fill(&planes[0].across);
    if (count == 3) {
        Tap *half = resizer->half_taps;
        half_taps_fill(half, horizontal->begin, horizontal->length, horizontal->resized,
                       horizontal->offset, width, half_width);
        half_taps_fill(half + width, vertical->begin, vertical->length, vertical->resized,
                       vertical->offset, height, half_height);
        if (crop->flip) taps_turn(half, width);
        planes[1].across = (Across){.taps = half,
                                    .width = width,
                                    .sixteens = resizer->sixteens[1],
                                    .quads = resizer->quads[1]};
        across_fill(&planes[1].across);
        planes[2].across = planes[1].across;
    }
    plane_rows(resizer, planes, count, crop, batch);
}

Outcome planes_resize(Resizer *resizer, const uint8_t *bytes, size_t size, const Crop *crop,
                      const Batch *batch) {
    Picture picture;
    const Axis *vertical = &crop->vertical, *horizontal = &crop->horizontal;
    if (crop->row < 0 || crop->row >= batch->rows || batch->width < 1 || batch->height < 1 ||
        crop->factor != 1 || !is_picture(bytes, size, &picture) ||
        crop->height != picture.height || crop->width != picture.width ||
        !axis_fits(vertical, picture.height, batch->height) ||
        !axis_fits(horizontal, picture.width, batch->width))
        return NOT_OURS;
    if (!prepared(resizer, &picture, batch)) return NO_MEMORY;
    Tap *across = resizer->workspace.taps, *down = across + batch->width;
    taps_fill(across, horizontal->length, horizontal->resized, horizontal->offset, batch->width);
    taps_fill(down, vertical->length, vertical->resized, vertical->offset, batch->height);
    for (int32_t x = 0; x < batch->width; x++) across[x].at += horizontal->begin;
    if (crop->flip) taps_turn(across, batch->width);
    if (picture.kind == RGB) {
        Source source = {resizer, &picture, 3 * (size_t)horizontal->begin,
                         3 * (size_t)(horizontal->begin + horizontal->length)};
        rgb_rows(&resizer->workspace, across, down, crop, batch, row_of, &source);
    } else {
        resize_planes(resizer, &picture, across, down, crop, batch);
    }
    return DECODED;
}
