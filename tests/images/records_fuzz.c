/* records_fuzz SEED COUNT FILE...: parse mutants of record files, under the compiler's sanitizers;
 * prints how many were taken of TFRecord and RecordIO. */
#include "fuzz.h"

#include "crcs.c"
#include "records.c"

int vectors_are_used = 1;

static void check_crcs(void) {
    static uint8_t bytes[9000];
    if (crc32c((const uint8_t *)"123456789", 9) != 0xE3069283) exit(4);
    for (size_t size = 0; size < sizeof bytes; size++) {
        bytes[size] = (uint8_t)draw(256);
        for (size_t from = 0; from < 8 && from <= size && (size < 300 || size % 64 == 0); from++)
            if (crc_by_table(bytes + from, size - from) != crc32c(bytes + from, size - from)) exit(5);
    }
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    start(arguments[1]);
    check_crcs();
    static uint8_t content[1 << 16];
    static const int64_t sizes[] = {0, 1, INT64_MAX, 1 << 20};
    static int64_t slots[16];
    static uint8_t rows[6][2 * 24];
    static uint64_t marks[6];
    const uint8_t zeros[24] = {0};
    const Text image = {(const uint8_t *)"image/encoded", 13};
    const Text label = {(const uint8_t *)"image/class/label", 17};
    const Text id = {(const uint8_t *)"image/id", 8}, none = {(const uint8_t *)"none", 4};
    Field fields[] = {
        {.name = image, .list = BYTES_LIST, .is_place = 1, .count = 1},
        {.name = label, .list = INT64_LIST, .part = LABEL, .count = 1},
        {.name = id, .list = INT64_LIST, .count = 1, .default_row = zeros},
        {.name = none, .list = FLOAT_LIST, .count = 3, .default_row = zeros},
        {.name = label, .list = INT64_LIST, .count = 1, .default_row = zeros},
    };
    Field header[] = {
        {.name = image, .list = BYTES_LIST, .part = CONTENT, .is_place = 1, .count = 1},
        {.name = label, .list = FLOAT_LIST, .part = LABEL, .count = 1},
        {.name = id, .list = BYTES_LIST, .part = ID2, .count = 8},
    };
    Schema schemas[] = {{.fields = fields, .count = 5}, {.fields = header, .count = 3}};
    uint8_t *columns[6];
    for (int n = 0; n < 6; n++) columns[n] = rows[n];
    long found[3] = {0};
    for (long left = strtol(arguments[2], NULL, 10); left > 0; left--) {
        size_t bytes = read_any(count - 3, arguments + 3, content, sizeof content);
        if (draw(4) == 0) bytes -= draw((uint32_t)bytes);
        uint8_t *copy = malloc(bytes + !bytes); /* Of its own size, so that no byte behind is read. */
        if (copy == NULL) return 3;
        memcpy(copy, content, bytes);
        int verify = (int)draw(2);
        for (uint32_t changes = draw(4); changes && bytes; changes--) {
            uint32_t at = draw(draw(2) ? (uint32_t)bytes : 120) % (uint32_t)bytes;
            copy[at] = draw(2) ? copy[at] ^ (uint8_t)(1u << draw(8)) : (uint8_t)draw(256);
        }
        int kind = draw(20) ? 1 + (int)draw(2) : 0;
        int64_t offsets[2] = {0, draw(9) ? 0 : draw(9) ? draw(300) : INT64_MAX - draw(9)};
        int64_t known[2] = {0}, *given = draw(9) ? NULL : known;
        known[0] = known[1] = sizes[draw(4)];
        uint8_t checked[2] = {(uint8_t)!verify, (uint8_t)!verify};
        File opened = {.bytes = copy, .size = bytes, .records = 2, .offsets = offsets, .sizes = given,
                       .checked = checked, .kind = (Kind)kind};
        Schema *schema = &schemas[kind == RECORDIO_IRHEADER];
        schema->slots = slots, schema->mask = 15, schema->longest = 0;
        memset(slots, -1, sizeof slots);
        for (int64_t n = 0; n < schema->count; n++)
            schema->fields[n].row_bytes = field_bytes(&schema->fields[n]);
        schema_enter(schema);
        Scratch scratch = {.marks = marks};
        memset(marks, 0, sizeof marks);
        for (int64_t n = 0; n < 2; n++) { /* The second one may begin as the first one does. */
            Record record = {&opened, 0, n, n, offsets[n], given ? known[n] : 0, checked[n]};
            if (!record_parse(schema, &record, columns, &scratch)) continue;
            int64_t place[3];
            memcpy(place, rows[0] + 24 * n, sizeof place);
            if (place[0] != 0 || place[1] < 0 || place[2] < 1 || (size_t)place[1] > bytes ||
                (size_t)place[2] > bytes - (size_t)place[1])
                return 6;
            found[kind]++;
        }
        free(copy);
    }
    printf("%ld %ld\n", found[TFRECORD_EXAMPLE], found[RECORDIO_IRHEADER]);
    return 0;
}
