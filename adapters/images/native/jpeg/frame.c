#include "frame.h"

#include <stdlib.h>
#include <string.h>

#include "../batch.h"
#include "../vectors.h"

enum {
    SIDE = 16, /* Of an MCU, in pixels. */
    LUMAS = 4, /* Blocks of an MCU. */
    BLOCKS = LUMAS + 2,
    LEAST_SAMPLES = 3, /* Across; libjpeg makes fewer of them larger in another way. */
    NUMBERS = 3 * IDCT_NUMBERS, /* Of `coefficients`, and of `steps`. */
};

void frame_free(Frame *frame) {
    free(frame->memory);
}

/* Whether it is in YCbCr, at 4:2:0, in one scan of everything. */
static int is_usual(const struct jpeg_decompress_struct *jpeg) {
    if (jpeg->jpeg_color_space != JCS_YCbCr || jpeg->num_components != FRAME_PLANES ||
        jpeg->comps_in_scan != FRAME_PLANES)
        return 0;
    if (jpeg->Ss != 0 || jpeg->Se != DCTSIZE2 - 1 || jpeg->Ah != 0 || jpeg->Al != 0) return 0;
    for (int i = 0; i < FRAME_PLANES; i++) {
        const jpeg_component_info *info = &jpeg->comp_info[i];
        int factor = i == 0 ? 2 : 1, table = info->quant_tbl_no;
        if (jpeg->cur_comp_info[i] != info || info->h_samp_factor != factor ||
            info->v_samp_factor != factor || table < 0 || table >= NUM_QUANT_TBLS ||
            jpeg->quant_tbl_ptrs[table] == NULL)
            return 0;
    }
    return (jpeg->image_width + 1) / 2 >= LEAST_SAMPLES;
}

static size_t lines_of(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Share the memory out, from one cache line to the next; 0 where there is none. */
static int has_memory(Frame *frame) {
    size_t across = ((size_t)frame->count + 1) / 2 * 2 * SIDE + YCC_PIXELS, needed = 0;
    size_t sizes[FRAME_PLANES + 5];
    int parts = 0;
    for (int i = 0; i < FRAME_PLANES; i++) {
        frame->strides[i] = lines_of(i == 0 ? across : across / 2) + LINE;
        sizes[parts++] = frame->strides[i] * (i == 0 ? 1 + SIDE : 1 + SIDE / 2);
    }
    sizes[parts++] = NUMBERS * sizeof(int16_t);
    sizes[parts++] = NUMBERS * sizeof(int16_t);
    for (int i = 0; i < 2; i++)
        sizes[parts++] = lines_of((across / 2 + 2 * YCC_SAMPLES) * sizeof(int16_t));
    sizes[parts++] = lines_of(3 * across + ROW_MARGIN);
    for (int i = 0; i < parts; i++) needed += sizes[i];
    if (!grown((void **)&frame->memory, &frame->bytes, needed)) return 0;
    uint8_t *at = frame->memory, *starts[FRAME_PLANES + 5];
    for (int i = 0; i < parts; at += sizes[i++]) starts[i] = at;
    for (int i = 0; i < FRAME_PLANES; i++) frame->planes[i] = starts[i];
    frame->coefficients = (int16_t *)starts[3];
    frame->steps = (int16_t *)starts[4];
    for (int i = 0; i < 2; i++) frame->sums[i] = (int16_t *)starts[5 + i] + YCC_SAMPLES;
    frame->rgb = starts[7];
    memset(frame->coefficients, 0, NUMBERS * sizeof(int16_t));
    return 1;
}

/* Where block `block` of the first or second MCU of two has its coefficients. */
static int16_t *block_of(int16_t *numbers, int mcu, int block) {
    int four = block < LUMAS ? mcu : 2, lane = block < LUMAS ? block : 2 * (block - LUMAS) + mcu;
    return numbers + four * IDCT_NUMBERS + 8 * lane;
}

static void fill_steps(Frame *frame, const struct jpeg_decompress_struct *jpeg) {
    for (int block = 0; block < BLOCKS; block++) {
        int component = block < LUMAS ? 0 : block - LUMAS + 1;
        const UINT16 *table = jpeg->quant_tbl_ptrs[jpeg->comp_info[component].quant_tbl_no]->quantval;
        for (int mcu = 0; mcu < 2; mcu++)
            for (int i = 0; i < DCTSIZE2; i++)
                block_of(frame->steps, mcu, block)[i / 8 * IDCT_ROW + i % 8] = (int16_t)table[i];
    }
}

/* The first sample of chroma that pixel `at` is made of. */
static int32_t sample_before(int32_t at) {
    return at < 2 ? 0 : (at - 1) / 2;
}

Taken frame_begin(Frame *frame, Huffman *huffman, const struct jpeg_decompress_struct *jpeg,
                  int32_t top, int32_t left, int32_t right) {
    if (!has_vbmi() || !is_usual(jpeg) || !huffman_begin(huffman, jpeg)) return FRAME_LEFT;
    int32_t height = (int32_t)jpeg->image_height, width = (int32_t)jpeg->image_width;
    int32_t samples = (width + 1) / 2, behind = right / 2 + 1 < samples ? right / 2 + 1 : samples;
    frame->huffman = huffman;
    frame->columns = (width + SIDE - 1) / SIDE;
    frame->rows = (height + SIDE - 1) / SIDE;
    frame->first = sample_before(left) / 8;
    frame->count = (behind - 1) / 8 + 1 - frame->first;
    frame->samples = behind - 8 * frame->first;
    frame->lines = (height + 1) / 2;
    frame->width = right - frame_left(frame);
    if (!has_memory(frame)) return FRAME_NO_MEMORY;
    fill_steps(frame, jpeg);
    frame->row = sample_before(top) / 8 - 1;
    return huffman_skip(huffman, (int64_t)(frame->row + 1) * frame->columns) ? FRAME_TAKEN
                                                                            : FRAME_LEFT;
}

int32_t frame_left(const Frame *frame) {
    return SIDE * frame->first;
}

/* Two MCUs' pixels; of the second one something else, where it isn't used. */
static void transform(Frame *frame, int32_t column) {
    int16_t *coefficients = frame->coefficients;
    uint8_t *at[FRAME_PLANES];
    for (int i = 0; i < FRAME_PLANES; i++)
        at[i] = frame->planes[i] + frame->strides[i] + (size_t)column * (i == 0 ? SIDE : SIDE / 2);
    size_t below = 8 * frame->strides[0];
    for (int mcu = 0; mcu < 2; mcu++, at[0] += SIDE, coefficients += IDCT_NUMBERS)
        idct_four(coefficients, frame->steps, at[0], at[0] + below, frame->strides[0]);
    idct_four(coefficients, frame->steps + 2 * IDCT_NUMBERS, at[1], at[2], frame->strides[1]);
}

/* The next row of MCUs; 0 where it is damaged. */
static int decode_next(Frame *frame) {
    JCOEF *blocks[2][BLOCKS];
    for (int mcu = 0; mcu < 2; mcu++)
        for (int i = 0; i < BLOCKS; i++) blocks[mcu][i] = block_of(frame->coefficients, mcu, i);
    for (int i = 0; i < FRAME_PLANES; i++)
        memcpy(frame->planes[i], frame->planes[i] + (i == 0 ? SIDE : SIDE / 2) * frame->strides[i],
               frame->strides[i]);
    if (!huffman_skip(frame->huffman, frame->first)) return 0;
    for (int32_t column = 0; column < frame->count; column++) {
        if (!huffman_decode(frame->huffman, blocks[column % 2])) return 0;
        if (column % 2 == 1 || column + 1 == frame->count) transform(frame, column / 2 * 2);
    }
    frame->row++;
    return huffman_skip(frame->huffman, frame->columns - frame->first - frame->count);
}

/* Line `y` of a plane, of the row of MCUs or the one above it. */
static const uint8_t *line_of(const Frame *frame, int plane, int32_t y) {
    int32_t first = frame->row * (plane == 0 ? SIDE : SIDE / 2) - 1;
    return frame->planes[plane] + (size_t)(y - first) * frame->strides[plane];
}

const uint8_t *frame_row(Frame *frame, int32_t y) {
    int32_t needed = (y + 1) / SIDE < frame->rows ? (y + 1) / SIDE : frame->rows - 1;
    while (frame->row < needed)
        if (!decode_next(frame)) return NULL;
    int32_t near = y / 2, far = y % 2 ? near + 1 : near - 1;
    if (far < 0 || far == frame->lines) far = near;
    const uint8_t *nears[2], *fars[2];
    for (int i = 0; i < 2; i++) {
        nears[i] = line_of(frame, 1 + i, near);
        fars[i] = line_of(frame, 1 + i, far);
    }
    ycc_sum(nears, fars, frame->samples, frame->sums);
    ycc_row(line_of(frame, 0, y), frame->sums, frame->width, frame->rgb);
    return frame->rgb;
}

int frame_check(Frame *frame, int32_t y) {
    int32_t last = frame->rows - 1, row = y / SIDE < last ? y / SIDE : last;
    int64_t left = row - frame->row;
    if (left > 0) frame->row = row;
    if (!huffman_skip(frame->huffman, left * frame->columns)) return 0;
    return row < last || huffman_ends(frame->huffman);
}
