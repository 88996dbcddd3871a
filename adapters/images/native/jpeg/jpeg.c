#include "jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "frame.h"
#include "huffman.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg-turbo is needed: jpeg_crop_scanline, jpeg_skip_scanlines"
#endif

enum {
    /* Rows that libjpeg is asked for at once; it gives as many as it has of an MCU. */
    ROWS_AT_ONCE = 4,
    /* Of chroma at half the height: it decodes the row of MCUs that holds this many after one. */
    ROWS_AHEAD = 2,
    /* Pixels that upsampling looks at beside those that it makes. */
    CHROMA_MARGIN = 2,
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
    Frame frame;
    Workspace workspace;
    /* Of the reduced image, rows [begin, end) as they were decoded last. */
    JSAMPROW rows[ROWS_AT_ONCE];
    int32_t begin, end;
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

static void format_nothing(j_common_ptr jpeg, char *text) {
    (void)jpeg, (void)text;
}

Decoder *decoder_new(void) {
    Decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) return NULL;
    decoder->jpeg.err = &decoder->errors.base;
    /* Not jpeg_std_error's: it writes to stderr, with which Debian's libjpeg.a links into no module. */
    decoder->errors.base.error_exit = leave;
    decoder->errors.base.emit_message = leave_at_a_warning;
    decoder->errors.base.output_message = say_nothing;
    decoder->errors.base.format_message = format_nothing;
    decoder->errors.base.reset_error_mgr = say_nothing;
    return decoder;
}

void decoder_free(Decoder *decoder) {
    if (decoder == NULL) return;
    workspace_free(&decoder->workspace);
    frame_free(&decoder->frame);
    free(decoder);
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
    return axis_fits(&crop->vertical, jpeg->output_height, batch->height) &&
           axis_fits(&crop->horizontal, jpeg->output_width, batch->width);
}

/* Whether there is memory for everything, with the rows pointing into it. */
static int prepared(Decoder *decoder, const Batch *batch) {
    size_t row_bytes = 3 * (size_t)decoder->jpeg.output_width + ROW_MARGIN;
    row_bytes = (row_bytes + LINE - 1) / LINE * LINE;
    size_t bytes = ROWS_AT_ONCE * row_bytes + ROW_START;
    if (!workspace_prepare(&decoder->workspace, batch, bytes)) return 0;
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        decoder->rows[i] = decoder->workspace.pixels + ROW_START + i * row_bytes;
    return 1;
}

/* Row `y` of the reduced image, which is none before the last one asked for. */
static const uint8_t *row_of(void *source, int32_t y) {
    Decoder *decoder = source;
    while (y >= decoder->end) {
        decoder->begin = decoder->end;
        decoder->end += (int32_t)jpeg_read_scanlines(&decoder->jpeg, decoder->rows, ROWS_AT_ONCE);
        if (decoder->end == decoder->begin) leave((j_common_ptr)&decoder->jpeg);
    }
    return decoder->rows[y - decoder->begin];
}

/* The same without libjpeg. */
static const uint8_t *row_of_frame(void *source, int32_t y) {
    Decoder *decoder = source;
    const uint8_t *row = frame_row(&decoder->frame, y);
    if (row == NULL) leave((j_common_ptr)&decoder->jpeg);
    return row;
}

static Outcome decode(Decoder *decoder, const Crop *crop, const Batch *batch) {
    const Axis *vertical = &crop->vertical, *horizontal = &crop->horizontal;
    int32_t width = batch->width, height = batch->height;
    if (!begun(&decoder->jpeg, crop, batch)) return NOT_OURS;
    if (!prepared(decoder, batch)) return NO_MEMORY;
    Tap *across = decoder->workspace.taps, *down = across + width;
    taps_fill(across, horizontal->length, horizontal->resized, horizontal->offset, width);
    taps_fill(down, vertical->length, vertical->resized, vertical->offset, height);
    decoder->begin = decoder->end = vertical->begin + down[0].at;
    int32_t left = horizontal->begin + across[0].at;
    int32_t right = horizontal->begin + tap_end(&across[width - 1], horizontal);
    Taken taken = FRAME_LEFT;
    if (crop->factor == 1)
        taken = frame_begin(&decoder->frame, &decoder->huffman, &decoder->jpeg, decoder->begin, left,
                            right);
    if (taken == FRAME_NO_MEMORY) return NO_MEMORY;
    int32_t from = taken == FRAME_TAKEN ? frame_left(&decoder->frame)
                                        : (int32_t)start(decoder, decoder->begin, left, right);
    for (int32_t x = 0; x < width; x++) across[x].at += horizontal->begin - from;
    if (crop->flip) taps_turn(across, width);
    rgb_rows(&decoder->workspace, across, down, crop, batch,
             taken == FRAME_TAKEN ? row_of_frame : row_of, decoder);
    /* Down to the end, where more damage is noticed; a reduced image's last row may be in part none
     * of it. */
    int32_t last = vertical->begin + vertical->length;
    int to_the_end = last + 1 >= (int32_t)decoder->jpeg.output_height;
    if (taken == FRAME_TAKEN) {
        int32_t asked = vertical->begin + tap_end(&down[height - 1], vertical) - 1;
        int32_t checked = to_the_end ? last : asked + ROWS_AHEAD;
        return frame_check(&decoder->frame, checked) ? DECODED : NOT_OURS;
    }
    if (!to_the_end) return DECODED;
    while (decoder->jpeg.output_scanline < decoder->jpeg.output_height)
        jpeg_read_scanlines(&decoder->jpeg, decoder->rows, ROWS_AT_ONCE);
    jpeg_finish_decompress(&decoder->jpeg);
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
        if (kind == 0xFF) { /* Filling. */
            at++;
            continue;
        }
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
