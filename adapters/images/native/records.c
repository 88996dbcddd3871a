#include "records.h"

#include <string.h>

#include "crcs.h"

enum {
    BYTES_LIST = 1,
    FLOAT_LIST = 2,
    INT64_LIST = 3,
    TAG_1 = 1 << 3 | 2, /* Field 1, with a size. */
    TAG_2 = 2 << 3 | 2,
    TAG_VARINT = 1 << 3,
    TAG_FLOAT = 1 << 3 | 5,
    LENGTH_BYTES = 8,
    CRC_BYTES = 4,
    OVERHEAD_BYTES = LENGTH_BYTES + 2 * CRC_BYTES,
    PART_BYTES = 8, /* Of RecordIO, before what a part holds. */
    IRHEADER_BYTES = 24,
};

static const uint32_t MAGIC = 0xCED7230A;
static const uint32_t MASK_DELTA = 0xA282EAD8;

/* A message that is read from its begin to its end; `failed` once it isn't as usual. */
typedef struct {
    const uint8_t *at, *end;
    int failed;
} Reader;

static uint32_t u32_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static float float_at(const uint8_t *bytes) {
    uint32_t bits = u32_at(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether the masked CRC behind so many bytes is theirs. */
static int crc_fits(const uint8_t *bytes, size_t size) {
    uint32_t crc = crc32c(bytes, size);
    return ((crc >> 15 | crc << 17) + MASK_DELTA) == u32_at(bytes + size);
}

static uint64_t read_varint(Reader *reader) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    reader->failed = 1;
    return 0;
}

/* What the next field holds, which must have this tag. */
static Reader read_field(Reader *reader, uint8_t tag) {
    Reader inner = {reader->end, reader->end, 1};
    if (reader->failed || reader->at >= reader->end || *reader->at != tag) {
        reader->failed = 1;
        return inner;
    }
    reader->at++;
    uint64_t size = read_varint(reader);
    if (reader->failed || size > (uint64_t)(reader->end - reader->at)) {
        reader->failed = 1;
        return inner;
    }
    inner = (Reader){reader->at, reader->at + size, 0};
    reader->at = inner.end;
    return inner;
}

/* As `read_field`, of the last field of a message. */
static Reader read_last(Reader *reader, uint8_t tag) {
    Reader inner = read_field(reader, tag);
    if (reader->at != reader->end) inner.failed = reader->failed = 1;
    return inner;
}

static int is_name(const Reader *reader, Name name) {
    size_t size = (size_t)(reader->end - reader->at);
    return size == name.size && memcmp(reader->at, name.bytes, size) == 0;
}

/* One integer, or one float; NO_LABEL for all else. */
static void read_label(int list, Reader values, Contents *contents) {
    size_t size = (size_t)(values.end - values.at);
    if (size < 2) return;
    if (list == INT64_LIST) {
        if (*values.at == TAG_VARINT)
            values.at++;
        else
            values = read_last(&values, TAG_1);
        uint64_t value = values.failed ? 0 : read_varint(&values);
        if (values.failed || values.at != values.end) return;
        memcpy(&contents->label.integer, &value, sizeof value);
        contents->kind = INTEGER;
    } else if (list == FLOAT_LIST) {
        if (size == 5 && *values.at == TAG_FLOAT)
            values.at++;
        else
            values = read_last(&values, TAG_1);
        if (values.failed || values.end - values.at != 4) return;
        contents->label.floating = float_at(values.at);
        contents->kind = FLOATING;
    }
}

static Contents look_into_example(const uint8_t *file, Reader payload, Name image, Name label) {
    Contents found = {.kind = NO_LABEL};
    const Contents nothing = found;
    int images = 0, labels = 0;
    Reader features = read_last(&payload, TAG_1);
    while (!features.failed && features.at < features.end) {
        Reader entry = read_field(&features, TAG_1);
        Reader name = read_field(&entry, TAG_1);
        Reader feature = read_last(&entry, TAG_2);
        if (entry.failed || name.failed || feature.failed || feature.at == feature.end)
            return nothing;
        uint8_t tag = *feature.at;
        Reader list = read_last(&feature, tag);
        int kind = tag >> 3;
        if (list.failed || (tag & 7) != 2 || kind < BYTES_LIST || kind > INT64_LIST) return nothing;
        if (is_name(&name, image)) {
            Reader bytes = read_last(&list, TAG_1);
            if (kind != BYTES_LIST || list.failed) return nothing;
            found.begin = bytes.at - file, found.size = bytes.end - bytes.at;
            images++;
        } else if (is_name(&name, label)) {
            read_label(kind, list, &found);
            labels++;
        }
    }
    return !features.failed && images == 1 && labels == 1 ? found : nothing;
}

static Contents look_into_tfrecord(const uint8_t *file, size_t left, size_t offset,
                                   size_t record_size, int verify, Name image, Name label) {
    const Contents nothing = {.kind = NO_LABEL};
    const uint8_t *record = file + offset, *data = record + LENGTH_BYTES + CRC_BYTES;
    if (left < OVERHEAD_BYTES) return nothing;
    uint64_t size = u32_at(record) | (uint64_t)u32_at(record + 4) << 32;
    if (size > left - OVERHEAD_BYTES) return nothing;
    if (record_size && record_size != size + OVERHEAD_BYTES) return nothing;
    if (verify && !(crc_fits(record, LENGTH_BYTES) && crc_fits(data, (size_t)size))) return nothing;
    return look_into_example(file, (Reader){data, data + size, 0}, image, label);
}

/* Whether a part shows no damage: no magic number where a writer would have cut, zeros as padding,
 * and behind it another record, or nothing. */
static int is_part(const uint8_t *data, size_t size, size_t padded, size_t left, int look_behind) {
    for (size_t i = 0; i + 4 <= padded; i += 4)
        if (u32_at(data + i) == MAGIC) return 0;
    for (size_t i = size; i < padded; i++)
        if (data[i] != 0) return 0;
    if (!look_behind || padded == left) return 1;
    return left - padded >= PART_BYTES && u32_at(data + padded) == MAGIC &&
           u32_at(data + padded + 4) >> 29 < 2;
}

static Contents look_into_recordio(const uint8_t *file, size_t left, size_t offset,
                                   size_t record_size, int verify) {
    Contents found = {.kind = NO_LABEL};
    const uint8_t *record = file + offset, *data = record + PART_BYTES;
    if (offset % 4 || left < PART_BYTES || u32_at(record) != MAGIC) return found;
    uint32_t word = u32_at(record + 4);
    size_t size = word & 0x1FFFFFFF, padded = (size + 3) & ~(size_t)3;
    if (word >> 29 != 0 || padded > left - PART_BYTES || size < IRHEADER_BYTES) return found;
    if (record_size && record_size != padded + PART_BYTES) return found;
    if (verify && !is_part(data, size, padded, left - PART_BYTES, record_size == 0)) return found;
    if (u32_at(data) != 0) return found; /* Of labels that follow. */
    found.label.floating = float_at(data + 4);
    found.begin = data + IRHEADER_BYTES - file;
    found.size = (int64_t)(size - IRHEADER_BYTES);
    found.kind = FLOATING;
    return found;
}

Contents record_look(const uint8_t *file, size_t file_size, size_t offset, size_t record_size,
                     int kind, int verify, Name image, Name label) {
    Contents found = {.kind = NO_LABEL};
    if (offset > file_size) return found;
    size_t left = file_size - offset;
    if (kind == TFRECORD_EXAMPLE)
        found = look_into_tfrecord(file, left, offset, record_size, verify, image, label);
    else if (kind == RECORDIO_IRHEADER)
        found = look_into_recordio(file, left, offset, record_size, verify);
    if (found.size < 1 || found.size > UINT32_MAX) found.kind = NO_LABEL;
    return found;
}
