#include "huffman.h"

#include <stdlib.h>
#include <string.h>

#include "../vectors.h"
#include "jpeg.h"

/* --- tables --- */

/* An entry of `look` is as many of a block's next coefficients as fit, two at most: how many bits it
 * takes, how many coefficients are zero before the first one, how far behind that the second one is,
 * with 0 for none, and their values. */
#define ENTRY(taken, zeros, value) \
    ((uint32_t)(taken) | (uint32_t)(zeros) << 8 | (uint32_t)(value) << 22)
#define TAKEN(entry) ((int)((entry)&63))
#define ZEROS(entry) ((entry) >> 8 & 15)
#define STEP(entry) ((entry) >> 12 & 15)
#define SECOND(entry) ((int32_t)((entry) << 10) >> 26)
#define VALUE(entry) ((int32_t)(entry) >> 22)

enum {
    /* In an entry: one code only, and as the value, how many bits that has; they don't fit. Without
     * bits, the code doesn't, or there is no such code. */
    PARTIAL = 1 << 6,
    /* In an entry: there are no more coefficients. */
    END = 1 << 7,
    /* An entry of `skim`: bits, then coefficients, then whether there are no more. It takes more bits
     * than are looked at, as values may lie behind them. */
    SKIM_STEP = 1 << 6,
    SKIM_END = 1 << 15,
    MOST_SKIMMED = 15,
    MOST_SIZE = 15, /* Bits of a value. */
    LAST = DCTSIZE2 - 1,
};

/* The number that so many bits stand for. */
static inline int32_t number_of(uint32_t bits, int size) {
    if (size == 0) return 0;
    uint32_t negative = (bits >> (size - 1)) - 1; /* All ones, or none. */
    return (int32_t)(bits - (negative & ((1U << size) - 1)));
}

/* A code by itself, with the size of its value; a size of none is the end but after fifteen zeros. */
static inline uint32_t code_of(int length, uint8_t symbol, int is_ac) {
    if (!is_ac) return ENTRY(length, 0, symbol & 15);
    if ((symbol & 15) == 0 && symbol != 0xF0) return ENTRY(length, 0, 0) | END;
    return ENTRY(length, symbol >> 4, symbol & 15);
}

enum { MOST_STEP = 15, MOST_SECOND = 31 };

_Static_assert(LOOK_BITS <= 10, "a value doesn't fit into an entry");

/* `look` with one coefficient in an entry, from what code its index begins with. */
static void fill_look(Codes *codes, const uint32_t *begun) {
    for (uint32_t i = 0; i < 1U << LOOK_BITS; i++) {
        uint32_t code = begun[i];
        int size = VALUE(code), spare = LOOK_BITS - TAKEN(code) - size;
        if (TAKEN(code) == 0 || spare < 0)
            codes->look[i] = code | PARTIAL;
        else
            codes->look[i] = ENTRY(TAKEN(code) + size, ZEROS(code),
                                   number_of(i >> spare & ((1U << size) - 1), size)) |
                             (code & END);
    }
}

/* A second coefficient, or the end, where they fit, too. */
static void fill_seconds(Codes *codes) {
    uint32_t firsts[1 << LOOK_BITS];
    memcpy(firsts, codes->look, sizeof firsts);
    for (uint32_t i = 0; i < 1U << LOOK_BITS; i++) {
        uint32_t entry = firsts[i];
        while (!(entry & (PARTIAL | END))) {
            uint32_t next = firsts[i << TAKEN(entry) & ((1U << LOOK_BITS) - 1)];
            if (next & PARTIAL || TAKEN(entry) + TAKEN(next) > LOOK_BITS) break;
            int value = VALUE(next), step = (int)ZEROS(next) + 1;
            if (!(next & END)) {
                if (STEP(entry) || step > MOST_STEP || abs(value) > MOST_SECOND) break;
                entry |= (uint32_t)step << 12 | ((uint32_t)value & 63) << 16;
            }
            entry = (entry + (uint32_t)TAKEN(next)) | (next & END);
        }
        codes->look[i] = entry;
    }
}

/* As many coefficients as there are codes of in the bits, without their values. */
static void fill_skim(Codes *codes, const uint32_t *begun) {
    for (uint32_t i = 0; i < 1U << SKIM_BITS; i++) {
        int taken = 0, step = 0, ends = 0;
        while (!ends && taken < SKIM_BITS) {
            uint32_t rest = i << taken & ((1U << SKIM_BITS) - 1);
            uint32_t code = begun[rest >> (SKIM_BITS - LOOK_BITS)];
            int behind = taken + TAKEN(code) + VALUE(code);
            int more = code & END ? 0 : (int)ZEROS(code) + 1;
            if (TAKEN(code) == 0 || taken + TAKEN(code) > SKIM_BITS) break;
            if (behind > MOST_SKIMMED || step + more > LAST) break;
            taken = behind;
            step += more;
            ends = more == 0;
        }
        if (taken == 0) step = LAST; /* More than any block has left. */
        codes->skim[i] = (uint16_t)(taken + step * SKIM_STEP + (ends ? SKIM_END : 0));
    }
}

/* What libjpeg asks of a table: no more codes of a length than there can be without that of all ones,
 * and no DC coefficient of more bits than a value has. */
static int is_sound(const JHUFF_TBL *table, int is_ac) {
    uint32_t code = 0;
    int count = 0;
    for (int length = 1; length <= 16; length++) {
        code += table->bits[length], count += table->bits[length];
        if (code >= 1U << length || count > 256) return 0;
        code <<= 1;
    }
    for (int i = 0; !is_ac && i < count; i++)
        if (table->huffval[i] > MOST_SIZE) return 0;
    return 1;
}

/* Make codes of an image's table, unless they are that one's already; 0 where it is none. */
static int codes_make(Codes *codes, const JHUFF_TBL *table, int is_ac) {
    if (table == NULL) return 0;
    if (codes->known && memcmp(codes->lengths, table->bits, sizeof codes->lengths) == 0 &&
        memcmp(codes->symbols, table->huffval, sizeof codes->symbols) == 0)
        return 1;
    if (!is_sound(table, is_ac)) return 0;
    memcpy(codes->lengths, table->bits, sizeof codes->lengths);
    memcpy(codes->symbols, table->huffval, sizeof codes->symbols);
    uint32_t code = 0, begun[1 << LOOK_BITS] = {0};
    int place = 0;
    for (int length = 1; length <= 16; length++) {
        codes->first[length] = place - (int32_t)code;
        for (int i = 0; i < codes->lengths[length]; i++, code++, place++)
            for (uint32_t rest = 0; length <= LOOK_BITS && rest < 1U << (LOOK_BITS - length); rest++)
                begun[(code << (LOOK_BITS - length)) + rest] =
                    code_of(length, codes->symbols[place & 255], is_ac);
        codes->limits[length] = code << (16 - length);
        code <<= 1;
    }
    fill_look(codes, begun);
    if (is_ac) {
        fill_seconds(codes);
        fill_skim(codes, begun);
    }
    codes->known = 1;
    return 1;
}

/* --- decoding --- */

enum {
    LOOKS = 3, /* For which the bits of one refill are enough, whatever they find. */
    REFILLED = 56,
};

/* After a look at the DC coefficient: at coefficients, the last of which has its value behind; past
 * coefficients. */
_Static_assert(LOOK_BITS + LOOKS * LOOK_BITS + MOST_SIZE <= REFILLED, "a refill is too short");
_Static_assert(LOOK_BITS + LOOKS * MOST_SKIMMED <= REFILLED, "a refill is too short");

typedef enum { GOES_ON, WHOLE, BROKEN } State; /* Of a block. */

/* Places in a block, in the order in which coefficients are coded. */
#define ZIGZAG(AT)                                                                                \
    AT(0), AT(1), AT(8), AT(16), AT(9), AT(2), AT(3), AT(10), AT(17), AT(24), AT(32), AT(25),      \
        AT(18), AT(11), AT(4), AT(5), AT(12), AT(19), AT(26), AT(33), AT(40), AT(48), AT(41),      \
        AT(34), AT(27), AT(20), AT(13), AT(6), AT(7), AT(14), AT(21), AT(28), AT(35), AT(42),      \
        AT(49), AT(56), AT(57), AT(50), AT(43), AT(36), AT(29), AT(22), AT(15), AT(23), AT(30),    \
        AT(37), AT(44), AT(51), AT(58), AT(59), AT(52), AT(45), AT(38), AT(31), AT(39), AT(46),    \
        AT(53), AT(60), AT(61), AT(54), AT(47), AT(55), AT(62), AT(63)
#define IN_LANES(at) ((at) / DCTSIZE * DCTSIZE * HUFFMAN_LANES + (at) % DCTSIZE)

static const uint8_t LANED[DCTSIZE2] = {ZIGZAG(IN_LANES)};

/* --- bits --- */

/* What is seldom called takes and gives `Bits` as they are, so that others have them in registers. */
static Bits refilled_bytewise(Bits bits) {
    for (; bits.count < REFILLED; bits.count += 8) {
        uint64_t byte = 0;
        if (bits.at < bits.end && bits.at[0] != 0xFF)
            byte = *bits.at++;
        else if (bits.end - bits.at > 1 && bits.at[1] == 0)
            byte = 0xFF, bits.at += 2;
        else
            bits.borrowed += 8; /* A marker. */
        bits.held |= byte << (56 - bits.count);
    }
    return bits;
}

/* At least REFILLED bits. */
static inline void refill(Bits *bits) {
    if (bits->end - bits->at >= 8) {
        const uint8_t *at = bits->at;
        uint64_t next = (uint64_t)at[0] << 56 | (uint64_t)at[1] << 48 | (uint64_t)at[2] << 40 |
                        (uint64_t)at[3] << 32 | (uint64_t)at[4] << 24 | (uint64_t)at[5] << 16 |
                        (uint64_t)at[6] << 8 | (uint64_t)at[7];
        /* No byte is 0xFF: those may have something else behind them than data. */
        if (((~next - 0x0101010101010101U) & next & 0x8080808080808080U) == 0) {
            /* A byte of which a part is held already is there again the next time. */
            bits->held |= next >> bits->count;
            bits->at += (63 - bits->count) >> 3;
            bits->count |= 56;
            return;
        }
    }
    *bits = refilled_bytewise(*bits);
}

static inline void take(Bits *bits, int count) {
    bits->held <<= count;
    bits->count -= count;
}

/* The next code in the data; it takes no bits if there is no such code. */
static uint32_t find_code(uint32_t top, const Codes *codes, int is_ac) {
    int length = 1;
    while (length <= 16 && top >= codes->limits[length]) length++;
    if (length > 16) return 0;
    int32_t place = codes->first[length] + (int32_t)(top >> (16 - length));
    return code_of(length, codes->symbols[place & 255], is_ac);
}

/* Go past a code and its value, which it gives. */
static inline int32_t take_code(Bits *bits, uint32_t code) {
    take(bits, TAKEN(code));
    int size = VALUE(code);
    if (size == 0) return 0;
    uint32_t value = (uint32_t)(bits->held >> (64 - size));
    take(bits, size);
    return number_of(value, size);
}

/* --- blocks --- */

/* The difference to the DC coefficient before; 0 if it is damaged. Bits for LOOKS are left. */
static inline int decode_dc(Bits *bits, const Codes *codes, uint32_t *last) {
    refill(bits);
    uint32_t entry = codes->look[bits->held >> (64 - LOOK_BITS)];
    int32_t value = VALUE(entry);
    if (entry & PARTIAL) {
        if (TAKEN(entry) == 0) entry = find_code((uint32_t)(bits->held >> 48), codes, 0);
        if (TAKEN(entry) == 0) return 0;
        value = take_code(bits, entry);
        refill(bits);
    } else {
        take(bits, TAKEN(entry));
    }
    *last += (uint32_t)value;
    return 1;
}

/* Go past one coefficient, by its code; it is put into the block, if there is one. */
static inline State decode_one(Bits *bits, uint32_t code, uint32_t *at, JCOEF *block,
                               const uint8_t *places) {
    if (TAKEN(code) == 0) return BROKEN;
    int32_t value = take_code(bits, code);
    if (code & END) return WHOLE;
    *at += ZEROS(code);
    if (*at > LAST) return BROKEN;
    if (block != NULL) block[places[*at]] = (JCOEF)value;
    return ++*at > LAST ? WHOLE : GOES_ON;
}

/* The same where a look doesn't tell the code, or tells too much so near to the block's last one. */
static inline State decode_long(Bits *bits, const Codes *codes, uint32_t *at, JCOEF *block,
                               const uint8_t *places) {
    refill(bits);
    return decode_one(bits, find_code((uint32_t)(bits->held >> 48), codes, 1), at, block, places);
}

/* The next coefficients of a block, as many as there are bits for. */
static inline State decode_some(Bits *bits, const Codes *codes, uint32_t *at, JCOEF *block,
                               const uint8_t *places) {
#pragma GCC unroll 3
    for (int looks = 0; looks < LOOKS; looks++) {
        uint32_t entry = codes->look[bits->held >> (64 - LOOK_BITS)];
        if (entry & PARTIAL && TAKEN(entry)) return decode_one(bits, entry, at, block, places);
        uint32_t first = *at + ZEROS(entry), second = first + STEP(entry);
        if (entry & PARTIAL || second >= LAST) return decode_long(bits, codes, at, block, places);
        take(bits, TAKEN(entry));
        block[places[second]] = (JCOEF)SECOND(entry); /* The first's place, if there is none. */
        block[places[first]] = (JCOEF)VALUE(entry);
        if (entry & END) return WHOLE;
        *at = second + 1;
    }
    return GOES_ON;
}

/* Go past the next coefficients, as many as there are bits for. */
static inline State skim_some(Bits *bits, const Codes *codes, uint32_t *at) {
#pragma GCC unroll 3
    for (int looks = 0; looks < LOOKS; looks++) {
        uint32_t entry = codes->skim[bits->held >> (64 - SKIM_BITS)];
        uint32_t behind = *at + entry / SKIM_STEP % DCTSIZE2;
        if (behind > LAST) return decode_long(bits, codes, at, NULL, NULL);
        take(bits, TAKEN(entry));
        if (entry & SKIM_END) return WHOLE;
        *at = behind;
    }
    return GOES_ON;
}

/* The ways through the blocks of an MCU, each with all registers its own; 0 for damaged ones. */
INLINE int decode_into(Huffman *huffman, JCOEF *const *blocks, const uint8_t *places) {
    Bits bits = huffman->bits;
    for (int i = 0; i < huffman->blocks; i++) {
        const Coding *coding = &huffman->codings[i];
        JCOEF *block = blocks[i];
        if (!decode_dc(&bits, coding->dc, coding->last_dc)) return 0;
        block[0] = (JCOEF)*coding->last_dc;
        uint32_t at = 1;
        State state;
        while ((state = decode_some(&bits, coding->ac, &at, block, places)) == GOES_ON)
            refill(&bits);
        if (state == BROKEN) return 0;
    }
    huffman->bits = bits;
    return bits.count >= bits.borrowed;
}

__attribute__((noinline)) static int skim_blocks(Huffman *huffman) {
    Bits bits = huffman->bits;
    for (int i = 0; i < huffman->blocks; i++) {
        const Coding *coding = &huffman->codings[i];
        if (!decode_dc(&bits, coding->dc, coding->last_dc)) return 0;
        uint32_t at = 1;
        State state;
        while ((state = skim_some(&bits, coding->ac, &at)) == GOES_ON) refill(&bits);
        if (state == BROKEN) return 0;
    }
    huffman->bits = bits;
    return bits.count >= bits.borrowed;
}

/* Whether the image's end is next, with no more than a part of a byte and filling before it. What has
 * anything else there is for a decoder that asks libjpeg whether that is damage. */
static int is_at_end(Bits *bits) {
    refill(bits);
    if (bits->borrowed == 0 || bits->count - bits->borrowed >= 8) return 0;
    const uint8_t *at = bits->at;
    while (at < bits->end && *at == 0xFF) at++;
    return at > bits->at && at < bits->end && *at == JPEG_EOI;
}

/* Of component `component`, which is the scan's `number`-th, `count` blocks of each MCU. */
static int add_blocks(Huffman *huffman, const struct jpeg_decompress_struct *jpeg, int number, int count) {
    const jpeg_component_info *info = jpeg->cur_comp_info[number];
    int dc = info->dc_tbl_no, ac = info->ac_tbl_no;
    if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS ||
        huffman->blocks + count > D_MAX_BLOCKS_IN_MCU ||
        !codes_make(&huffman->dc[dc], jpeg->dc_huff_tbl_ptrs[dc], 0) ||
        !codes_make(&huffman->ac[ac], jpeg->ac_huff_tbl_ptrs[ac], 1))
        return 0;
    huffman->last_dc[number] = 0;
    for (int i = 0; i < count; i++)
        huffman->codings[huffman->blocks++] =
            (Coding){&huffman->dc[dc], &huffman->ac[ac], &huffman->last_dc[number]};
    return 1;
}

int huffman_begin(Huffman *huffman, const struct jpeg_decompress_struct *jpeg) {
    if (jpeg->arith_code || jpeg->progressive_mode || jpeg->restart_interval != 0 ||
        jpeg->data_precision != 8 || jpeg->comps_in_scan > COMPONENTS)
        return 0;
    huffman->blocks = 0;
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        const jpeg_component_info *info = jpeg->cur_comp_info[i];
        int count = jpeg->comps_in_scan == 1 ? 1 : info->h_samp_factor * info->v_samp_factor;
        if (!add_blocks(huffman, jpeg, i, count)) return 0;
    }
    const uint8_t *begin = jpeg->src->next_input_byte;
    huffman->bits = (Bits){0, 0, 0, begin, begin + jpeg->src->bytes_in_buffer};
    return 1;
}

int huffman_decode(Huffman *huffman, JCOEF *const *blocks) {
    return decode_into(huffman, blocks, LANED);
}

int huffman_skip(Huffman *huffman, int64_t count) {
    while (count-- > 0)
        if (!skim_blocks(huffman)) return 0;
    return 1;
}

int huffman_ends(Huffman *huffman) {
    return is_at_end(&huffman->bits);
}

/* --- within libjpeg --- */

#ifndef HAVE_JPEGINT
const int HUFFMAN_IS_OWN = 0;

void huffman_take_over(Huffman *huffman, struct jpeg_decompress_struct *jpeg, JDIMENSION from,
                       JDIMENSION columns) {
    (void)huffman, (void)jpeg, (void)from, (void)columns;
}
#else
#include <jpegint.h>

const int HUFFMAN_IS_OWN = 1;

/* Of a block's sides, in pixels of the output; the two are the same. */
#if JPEG_LIB_VERSION >= 70
#define SCALED_SIZE min_DCT_h_scaled_size
#else
#define SCALED_SIZE min_DCT_scaled_size
#endif

#define ALONE(at) (at)
static const uint8_t NATURAL[DCTSIZE2] = {ZIGZAG(ALONE)};

__attribute__((noinline)) static int decode_blocks(Huffman *huffman, JCOEF *const *blocks) {
    return decode_into(huffman, blocks, NATURAL);
}

/* Instead of libjpeg's: `blocks` is NULL where none of them are used. */
static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
    Huffman *huffman = jpeg->client_data;
    JDIMENSION column = huffman->column;
    huffman->column = column + 1 < jpeg->MCUs_per_row ? column + 1 : 0;
    int is_used = blocks != NULL && column >= huffman->first && column <= huffman->last;
    int sound = huffman->left > 0;
    if (sound)
        sound = is_used ? decode_blocks(huffman, (JCOEF *const *)blocks) : skim_blocks(huffman);
    if (sound && --huffman->left == 0) {
        sound = is_at_end(&huffman->bits);
        jpeg->src->next_input_byte = huffman->bits.at;
        jpeg->src->bytes_in_buffer = (size_t)(huffman->bits.end - huffman->bits.at);
    }
    if (!sound) jpeg->err->error_exit((j_common_ptr)jpeg);
    return TRUE;
}

void huffman_take_over(Huffman *huffman, struct jpeg_decompress_struct *jpeg, JDIMENSION from,
                       JDIMENSION columns) {
    if (!huffman_begin(huffman, jpeg)) return;
    JDIMENSION pixels = (JDIMENSION)jpeg->SCALED_SIZE;
    if (jpeg->comps_in_scan > 1) pixels *= (JDIMENSION)jpeg->max_h_samp_factor;
    huffman->column = 0;
    huffman->first = from / pixels;
    huffman->last = (from + columns - 1) / pixels;
    huffman->left = jpeg->MCUs_per_row * jpeg->MCU_rows_in_scan;
    jpeg->entropy->decode_mcu = decode_mcu;
}
#endif
