#include "codes.h"

#include <stdlib.h>
#include <string.h>

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

int codes_make(Codes *codes, const JHUFF_TBL *table, int is_ac) {
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
