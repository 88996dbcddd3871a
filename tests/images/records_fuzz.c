/* records_fuzz SEED COUNT FILE...: look for images in mutants of record files, under the compiler's
 * sanitizers; prints how many were found in TFRecord and RecordIO. */
#include <stdio.h>
#include <stdlib.h>

#include "crcs.c"
#include "records.c"

static uint64_t state;

static uint32_t draw(uint32_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return below ? (uint32_t)((state * 0x2545F4914F6CDD1DULL) >> 32) % below : 0;
}

static void check_crcs(void) {
    static uint8_t bytes[300];
    if (crc32c((const uint8_t *)"123456789", 9) != 0xE3069283) exit(4);
    for (size_t size = 0; size < sizeof bytes; size++) {
        bytes[size] = (uint8_t)draw(256);
        for (size_t from = 0; from < 8 && from <= size; from++)
            if (crc_by_table(bytes + from, size - from) != crc32c(bytes + from, size - from)) exit(5);
    }
    for (int64_t size = 0; size < 40; size++) { /* Three of a size, and others. */
        int64_t begins[8], ends[8];
        uint32_t found[8];
        for (int i = 0; i < 8; i++) begins[i] = draw(200), ends[i] = begins[i] + size + (i == 4);
        crcs32c(bytes, begins, ends, 8, found);
        for (int i = 0; i < 8; i++)
            if (found[i] != crc_by_table(bytes + begins[i], (size_t)(ends[i] - begins[i]))) exit(6);
    }
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    state = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    check_crcs();
    static uint8_t content[1 << 16];
    static const size_t sizes[] = {0, 1, SIZE_MAX, 1 << 20};
    const Name image = {(const uint8_t *)"image/encoded", 13};
    const Name label = {(const uint8_t *)"image/class/label", 17};
    long found[3] = {0};
    for (long left = strtol(arguments[2], NULL, 10); left > 0; left--) {
        FILE *file = fopen(arguments[3 + draw((uint32_t)count - 3)], "rb");
        if (file == NULL) return 3;
        size_t bytes = fread(content, 1, sizeof content, file);
        fclose(file);
        if (draw(4) == 0) bytes -= draw((uint32_t)bytes);
        uint8_t *copy = malloc(bytes + !bytes); /* Of its own size, so that no byte behind is read. */
        if (copy == NULL) return 3;
        memcpy(copy, content, bytes);
        for (uint32_t changes = draw(4); changes && bytes; changes--) {
            uint32_t at = draw(draw(2) ? (uint32_t)bytes : 120) % (uint32_t)bytes;
            copy[at] = draw(2) ? copy[at] ^ (uint8_t)(1u << draw(8)) : (uint8_t)draw(256);
        }
        size_t offset = draw(9) ? 0 : draw(9) ? draw(300) : SIZE_MAX - draw(9);
        size_t size = draw(9) ? 0 : sizes[draw(4)];
        int kind = draw(20) ? 1 + (int)draw(2) : (int)draw(9) - 4;
        Contents contents = record_look(copy, bytes, offset, size, kind, (int)draw(2), image, label);
        if (contents.kind != NO_LABEL) {
            if (contents.begin < 0 || contents.size < 1 || (size_t)contents.begin > bytes ||
                (size_t)contents.size > bytes - (size_t)contents.begin)
                return 6;
            found[kind]++;
        }
        free(copy);
    }
    printf("%ld %ld\n", found[TFRECORD_EXAMPLE], found[RECORDIO_IRHEADER]);
    return 0;
}
