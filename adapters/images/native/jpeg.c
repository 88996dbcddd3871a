#include "jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "huffman.h"
#include "resize.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg-turbo is needed: jpeg_crop_scanline, jpeg_skip_scanlines"
#endif

enum {
    /* Rows that libjpeg is asked for at once; it gives as many as it has of an MCU. */
    ROWS_AT_ONCE = 4,
    /* Pixels that upsampling looks at beside those that it makes. */
    CHROMA_MARGIN = 2,
    LINE = 64, /* Bytes of the processor's cache. */
    /* Where rows begin in a line: libjpeg-turbo writes aligned rows past the cache, from where they
     * would have to come back at once. */
    ROW_START = 8,
};

typedef struct {
    struct jpeg_error_mgr base;
    jmp_buf way_out;
} Errors;

struct Decoder {
    struct jpeg_decompress_struct jpeg;
    Errors errors;
    Huffman huffman;
    /* As large as the largest image so far needed. */
    Tap *taps;
    Eight *eights;
    int16_t *lines;  /* Two rows that were resized along the horizontal axis. */
    uint8_t *pixels; /* ROWS_AT_ONCE rows as they were decoded. */
    uint8_t *done;   /* A row of the batch, before it is laid out. */
    size_t taps_bytes, eights_bytes, lines_bytes, pixels_bytes, done_bytes;
};

static void leave(j_common_ptr jpeg) {
    longjmp(((Errors *)jpeg->err)->way_out, 1);
}

/* Warnings are what libjpeg says of damage that it can look past; we don't. */
static void leave_at_a_warning(j_common_ptr jpeg, int level) {
    if (level < 0) leave(jpeg);
}

static void say_nothing(j_common_ptr jpeg) {
    (void)jpeg;
}

Decoder *decoder_new(void) {
    Decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) return NULL;
    decoder->jpeg.err = jpeg_std_error(&decoder->errors.base);
    decoder->errors.base.error_exit = leave;
    decoder->errors.base.emit_message = leave_at_a_warning;
    decoder->errors.base.output_message = say_nothing;
    return decoder;
}

void decoder_free(Decoder *decoder) {
    if (decoder == NULL) return;
    free(decoder->taps);
    free(decoder->eights);
    free(decoder->lines);
    free(decoder->pixels);
    free(decoder->done);
    free(decoder);
}

/* Rows [begin, end) of the reduced image, as they were decoded last. */
typedef struct {
    JSAMPROW at[ROWS_AT_ONCE];
    int32_t begin, end;
} Rows;

/* Whether there are as many bytes, from a cache line's first one; what they held is lost. */
static int grown(void **memory, size_t *held, size_t bytes) {
    if (*held >= bytes) return 1;
    free(*memory);
    bytes = (bytes + LINE - 1) / LINE * LINE;
    *memory = aligned_alloc(LINE, bytes);
    *held = *memory == NULL ? 0 : bytes;
    if (*held) memset(*memory, 0, bytes); /* What has no weight is read all the same. */
    return *memory != NULL;
}

static int fits(const Axis *axis, JDIMENSION pixels, int32_t wanted) {
    return axis->begin >= 0 && axis->length > 0 && axis->resized > 0 && axis->offset >= 0 &&
           (uint64_t)axis->begin + (uint64_t)axis->length <= pixels &&
           (uint64_t)axis->offset + (uint64_t)wanted <= (uint64_t)axis->resized;
}

/* The last pixel that a tap reads, or one behind it. */
static int32_t end_of(const Tap *tap, const Axis *axis) {
    return tap->at + 1 < axis->length ? tap->at + 2 : tap->at + 1;
}

/* Numbers of a row that was resized along the horizontal axis, up to the next cache line. */
static size_t line_of(const Batch *batch) {
    return (4 * (size_t)batch->width * sizeof(int16_t) + LINE - 1) / LINE * LINE / sizeof(int16_t);
}

/* Left to right. */
static void turn(Tap *taps, int32_t count) {
    for (int32_t x = 0; x < count / 2; x++) {
        Tap other = taps[x];
        taps[x] = taps[count - 1 - x];
        taps[count - 1 - x] = other;
    }
}

/* Start with the crop's columns, at its first row.
 *
 * Returns how many pixels of the reduced image are left of a row's first one. */
static JDIMENSION start(Decoder *decoder, int32_t top, int32_t left, int32_t right) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    jpeg_start_decompress(jpeg);
    int32_t begin = left > CHROMA_MARGIN ? left - CHROMA_MARGIN : 0;
    int32_t end = right + CHROMA_MARGIN;
    if (end > (int32_t)jpeg->output_width) end = (int32_t)jpeg->output_width;
    JDIMENSION from = (JDIMENSION)begin, count = (JDIMENSION)(end - begin);
    jpeg_crop_scanline(jpeg, &from, &count);
    huffman_take_over(&decoder->huffman, jpeg, from, count);
    if (top > 0) jpeg_skip_scanlines(jpeg, (JDIMENSION)top);
    return from;
}

/* Where a row of pixels goes if the batch has them as they come; NULL where it is laid out. */
static uint8_t *line_in(const Batch *batch, int32_t row, int32_t y) {
    if (batch->table != NULL || batch->channels_first) return NULL;
    size_t line = (size_t)row * batch->height + y;
    return (uint8_t *)batch->start + line * batch->width * 3;
}

static void lay_out(const uint8_t *done, const Batch *batch, int32_t row, int32_t y) {
    size_t width = (size_t)batch->width, line = (size_t)row * batch->height + y;
    size_t plane = (size_t)batch->height * width;
    size_t first = batch->channels_first ? (size_t)row * 3 * plane + y * width : line * width * 3;
    size_t pixel = batch->channels_first ? 1 : 3, channel = batch->channels_first ? plane : 1;
    for (size_t c = 0; c < 3; c++) {
        if (batch->table == NULL) {
            uint8_t *out = (uint8_t *)batch->start + first + c * channel;
            for (size_t x = 0; x < width; x++) out[x * pixel] = done[3 * x + c];
        } else {
            const float *table = batch->table + 256 * c;
            float *out = (float *)batch->start + first + c * channel;
            for (size_t x = 0; x < width; x++) out[x * pixel] = table[done[3 * x + c]];
        }
    }
}

/* Grey, YCbCr or RGB, as encoders write them; others libjpeg crops wrongly. */
static int subsampled_as_usual(const struct jpeg_decompress_struct *jpeg) {
    const jpeg_component_info *luma = jpeg->comp_info;
    if (jpeg->jpeg_color_space == JCS_GRAYSCALE) return jpeg->num_components == 1;
    if (jpeg->jpeg_color_space != JCS_YCbCr && jpeg->jpeg_color_space != JCS_RGB) return 0;
    for (int i = 1; i < jpeg->num_components; i++)
        if (luma[i].h_samp_factor != 1 || luma[i].v_samp_factor != 1) return 0;
    int h = luma->h_samp_factor, v = luma->v_samp_factor;
    return jpeg->num_components == 3 && ((h <= 2 && v <= 2) || (h == 4 && v == 1));
}

/* Read the header; 0 where this isn't the image that the crop was made for, or none of ours. */
static int begun(struct jpeg_decompress_struct *jpeg, const Crop *crop, const Batch *batch) {
    if (jpeg_read_header(jpeg, TRUE) != JPEG_HEADER_OK || jpeg_has_multiple_scans(jpeg)) return 0;
    if (!subsampled_as_usual(jpeg)) return 0;
    if ((JDIMENSION)crop->height != jpeg->image_height ||
        (JDIMENSION)crop->width != jpeg->image_width ||
        (uint64_t)jpeg->image_height * jpeg->image_width > MOST_PIXELS)
        return 0;
    jpeg->out_color_space = JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)crop->factor;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    jpeg_calc_output_dimensions(jpeg);
    return fits(&crop->vertical, jpeg->output_height, batch->height) &&
           fits(&crop->horizontal, jpeg->output_width, batch->width);
}

/* Whether there is memory for everything, with `rows` pointing into it. */
static int prepared(Decoder *decoder, const Batch *batch, Rows *rows) {
    size_t width = (size_t)batch->width, height = (size_t)batch->height;
    size_t row_bytes = 3 * (size_t)decoder->jpeg.output_width + ROW_MARGIN;
    row_bytes = (row_bytes + LINE - 1) / LINE * LINE;
    if (!grown((void **)&decoder->taps, &decoder->taps_bytes, (width + height) * sizeof(Tap)) ||
        !grown((void **)&decoder->eights, &decoder->eights_bytes, width / 8 * sizeof(Eight)) ||
        !grown((void **)&decoder->lines, &decoder->lines_bytes,
               2 * line_of(batch) * sizeof(int16_t)) ||
        !grown((void **)&decoder->pixels, &decoder->pixels_bytes,
               ROWS_AT_ONCE * row_bytes + ROW_START) ||
        !grown((void **)&decoder->done, &decoder->done_bytes, 3 * width))
        return 0;
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        rows->at[i] = decoder->pixels + ROW_START + i * row_bytes;
    return 1;
}

/* Row `y` of the image, which is none before the last one asked for. */
static const uint8_t *row_of(struct jpeg_decompress_struct *jpeg, Rows *rows, int32_t y) {
    while (y >= rows->end) {
        rows->begin = rows->end;
        rows->end += (int32_t)jpeg_read_scanlines(jpeg, rows->at, ROWS_AT_ONCE);
        if (rows->end == rows->begin) leave((j_common_ptr)jpeg);
    }
    return rows->at[y - rows->begin];
}

static void copy_rows(Decoder *decoder, Rows *rows, const Tap *across, const Tap *down,
                      const Crop *crop, const Batch *batch) {
    for (int32_t i = 0; i < batch->height; i++) {
        const uint8_t *row = row_of(&decoder->jpeg, rows, crop->vertical.begin + down[i].at);
        uint8_t *line = line_in(batch, crop->row, i), *done = line ? line : decoder->done;
        if (crop->flip)
            for (int32_t x = 0; x < batch->width; x++)
                memcpy(done + 3 * x, row + 3 * across[x].at, 3);
        else
            memcpy(done, row + 3 * across[0].at, 3 * (size_t)batch->width);
        if (line == NULL) lay_out(done, batch, crop->row, i);
    }
}

static void resize_rows(Decoder *decoder, Rows *rows, const Tap *across, const Tap *down,
                        const Crop *crop, const Batch *batch) {
    int32_t eights = eights_fill(decoder->eights, across, batch->width);
    int16_t *lines[2] = {decoder->lines, decoder->lines + line_of(batch)};
    int32_t lined[2] = {-1, -1}; /* Which of the image's rows are there. */
    for (int32_t i = 0; i < batch->height; i++) {
        int32_t above = crop->vertical.begin + down[i].at;
        int32_t below = crop->vertical.begin + end_of(&down[i], &crop->vertical) - 1;
        for (int32_t y = above; y <= below; y++) {
            if (lined[y & 1] == y) continue;
            const uint8_t *row = row_of(&decoder->jpeg, rows, y);
            resize_horizontally(row, across, batch->width, decoder->eights, eights, lines[y & 1]);
            lined[y & 1] = y;
        }
        uint8_t *line = line_in(batch, crop->row, i), *done = line ? line : decoder->done;
        resize_vertically(lines[above & 1], lines[below & 1], down[i].weight, batch->width, done);
        if (line == NULL) lay_out(done, batch, crop->row, i);
    }
}

static Outcome decode(Decoder *decoder, const Crop *crop, const Batch *batch) {
    const Axis *vertical = &crop->vertical, *horizontal = &crop->horizontal;
    int32_t width = batch->width, height = batch->height;
    Rows rows;
    if (!begun(&decoder->jpeg, crop, batch)) return NOT_OURS;
    if (!prepared(decoder, batch, &rows)) return NO_MEMORY;
    Tap *across = decoder->taps, *down = decoder->taps + width;
    taps_fill(across, horizontal->length, horizontal->resized, horizontal->offset, width);
    taps_fill(down, vertical->length, vertical->resized, vertical->offset, height);
    rows.begin = rows.end = vertical->begin + down[0].at;
    int32_t left = horizontal->begin + across[0].at;
    int32_t right = horizontal->begin + end_of(&across[width - 1], horizontal);
    int32_t from = (int32_t)start(decoder, rows.begin, left, right);
    for (int32_t x = 0; x < width; x++) across[x].at += horizontal->begin - from;
    if (crop->flip) turn(across, width);
    if (vertical->length == vertical->resized && horizontal->length == horizontal->resized)
        copy_rows(decoder, &rows, across, down, crop, batch);
    else
        resize_rows(decoder, &rows, across, down, crop, batch);
    if ((JDIMENSION)(vertical->begin + vertical->length) + 1 >= decoder->jpeg.output_height) {
        /* Down to the end, where libjpeg notices more damage; a reduced image's last row may be
         * in part none of it. */
        while (decoder->jpeg.output_scanline < decoder->jpeg.output_height)
            jpeg_read_scanlines(&decoder->jpeg, rows.at, ROWS_AT_ONCE);
        jpeg_finish_decompress(&decoder->jpeg);
    }
    return DECODED;
}

Outcome decoder_decode(Decoder *decoder, const uint8_t *bytes, size_t size, const Crop *crop,
                       const Batch *batch) {
    /* Without its last marker, an image may have been cut short behind what is used of it. */
    if (size < 4 || bytes[size - 2] != 0xFF || bytes[size - 1] != JPEG_EOI) return NOT_OURS;
    if (crop->row < 0 || crop->row >= batch->rows || batch->width < 1 || batch->height < 1 ||
        (crop->factor != 1 && crop->factor != 2 && crop->factor != 4 && crop->factor != 8))
        return NOT_OURS;
    /* A new one for each image, as tables that it lacks would be those of the one before. */
    decoder->jpeg.mem = NULL;
    decoder->jpeg.client_data = &decoder->huffman;
    if (setjmp(decoder->errors.way_out)) {
        jpeg_destroy_decompress(&decoder->jpeg);
        return NOT_OURS;
    }
    jpeg_create_decompress(&decoder->jpeg);
    jpeg_mem_src(&decoder->jpeg, bytes, (unsigned long)size);
    Outcome outcome = decode(decoder, crop, batch);
    jpeg_destroy_decompress(&decoder->jpeg);
    return outcome;
}

int jpeg_size(const uint8_t *jpeg, size_t bytes, int32_t *height, int32_t *width) {
    if (bytes < 2 || jpeg[0] != 0xFF || jpeg[1] != 0xD8) return 0;
    /* A segment: 0xFF, what it is, the size of what follows in two bytes. */
    for (size_t at = 2; at + 9 <= bytes && jpeg[at] == 0xFF;) {
        const uint8_t *segment = jpeg + at;
        int kind = segment[1];
        if (kind >= 0xC0 && kind <= 0xC2) { /* Baseline, extended or progressive. */
            *height = segment[5] << 8 | segment[6];
            *width = segment[7] << 8 | segment[8];
            uint32_t pixels = (uint32_t)*height * (uint32_t)*width;
            return pixels > 0 && pixels <= MOST_PIXELS;
        }
        int is_table = kind == 0xC4 || kind == 0xDB || kind == 0xDD;
        if (!is_table && (kind < 0xE0 || kind > 0xEF) && kind != JPEG_COM) return 0;
        at += 2 + (size_t)(segment[2] << 8 | segment[3]);
    }
    return 0;
}
