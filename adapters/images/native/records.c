#include "records.h"

#include <string.h>

#include "crcs.h"

enum {
    VARINT = 0,
    FIXED64 = 1,
    SIZED = 2,
    FIXED32 = 5,
    TAG_1 = 1 << 3 | SIZED,
    TAG_2 = 2 << 3 | SIZED,
    TAG_INTEGER = 1 << 3 | VARINT,
    TAG_FLOAT = 1 << 3 | FIXED32,
    MOST_VARINT_BYTES = 10,
    /* Entries that are compared with one that is empty. Python remembers the names of all. */
    MOST_COMPARED = 256,
    LENGTH_BYTES = 8,
    CRC_BYTES = 4,
    OVERHEAD_BYTES = LENGTH_BYTES + 2 * CRC_BYTES,
    PART_BYTES = 8, /* Of RecordIO, before what a part holds. */
    IRHEADER_BYTES = 24,
    LABEL_AT = 4,
    ID_AT = 8,
    ID2_AT = 16,
};

static const uint32_t MAGIC = 0xCED7230A;
static const uint32_t MASK_DELTA = 0xA282EAD8;

#ifdef __GNUC__
#define NOT_INLINED __attribute__((noinline))
#else
#define NOT_INLINED
#endif

/* Bytes that are left to read. */
typedef struct {
    const uint8_t *begin, *end;
} Reader;

/* Where a record goes. */
typedef struct {
    const Record *record;
    uint8_t *const *columns;
    Scratch *scratch;
} Target;

static inline uint8_t *row_of(const Schema *schema, const Target *target, int64_t field) {
    return target->columns[field] + target->record->row * schema->fields[field].row_bytes;
}

/* Whether this record had the field before; it has now. */
static inline int mark(const Target *target, int64_t field) {
    uint64_t *mark = &target->scratch->marks[field];
    int before = *mark == target->scratch->record;
    *mark = target->scratch->record;
    return before;
}

static inline size_t left(const Reader *reader) {
    return (size_t)(reader->end - reader->begin);
}

static uint32_t u32_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline uint64_t u64_of(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* memcmp, inline: 8 bytes at a time, the last ones twice, as names are short. */
static inline int are_equal(const uint8_t *one, const uint8_t *other, size_t size) {
    if (size < 8) {
        for (size_t n = 0; n < size; n++)
            if (one[n] != other[n]) return 0;
        return 1;
    }
    for (size_t n = 0; n + 8 < size; n += 8)
        if (u64_of(one + n) != u64_of(other + n)) return 0;
    return u64_of(one + size - 8) == u64_of(other + size - 8);
}

/* --- Protocol Buffers: each function returns 0 if the bytes are something else --- */

/* The end of a varint, or NULL. Not inlined: most have one byte, which `read_varint` reads. */
NOT_INLINED static const uint8_t *long_varint(Reader reader, uint64_t *value) {
    *value = 0;
    for (int n = 0; n < MOST_VARINT_BYTES && reader.begin < reader.end; n++) {
        uint8_t byte = *reader.begin++;
        *value |= (uint64_t)(byte & 127) << 7 * n; /* Bits from the 65th on are dropped. */
        if (byte < 128) return reader.begin;
    }
    return NULL;
}

static inline int read_varint(Reader *reader, uint64_t *value) {
    if (reader->begin < reader->end && *reader->begin < 128) {
        *value = *reader->begin++;
        return 1;
    }
    uint64_t found;
    const uint8_t *end = long_varint(*reader, &found);
    if (end == NULL) return 0;
    reader->begin = end, *value = found;
    return 1;
}

/* A size, and so many bytes. */
static inline int read_sized(Reader *reader, Reader *inner) {
    uint64_t size;
    if (!read_varint(reader, &size) || size > left(reader)) return 0;
    *inner = (Reader){reader->begin, reader->begin + size};
    reader->begin = inner->end;
    return 1;
}

/* The same behind this tag. */
static inline int read_field(Reader *reader, uint8_t tag, Reader *inner) {
    if (reader->begin == reader->end || *reader->begin != tag) return 0;
    reader->begin++;
    return read_sized(reader, inner);
}

/* The same, if nothing else follows. */
static inline int read_last(Reader reader, uint8_t tag, Reader *inner) {
    return read_field(&reader, tag, inner) && reader.begin == reader.end;
}

/* The end of an unknown field, or NULL. */
NOT_INLINED static const uint8_t *end_of_field(Reader reader) {
    uint64_t tag, value;
    Reader inner;
    size_t size = 0;
    const uint8_t *begin = reader.begin;
    if (!read_varint(&reader, &tag) || tag >> 3 == 0 || tag >> 32 != 0) return NULL;
    if (tag < 128 && reader.begin - begin > 1) return NULL; /* Perhaps a known field, written longer. */
    switch (tag & 7) {
        case VARINT: return read_varint(&reader, &value) ? reader.begin : NULL;
        case SIZED: return read_sized(&reader, &inner) ? reader.begin : NULL;
        case FIXED32: size = 4; break;
        case FIXED64: size = 8; break;
        default: return NULL;
    }
    return size > left(&reader) ? NULL : reader.begin + size;
}

/* One name and one feature, in either order. */
static inline int read_entry(Reader *features, Reader *name, Reader *feature) {
    Reader entry;
    if (!read_field(features, TAG_1, &entry)) return 0;
    if (entry.begin < entry.end && *entry.begin == TAG_1)
        return read_field(&entry, TAG_1, name) && read_last(entry, TAG_2, feature);
    return read_field(&entry, TAG_2, feature) && read_last(entry, TAG_1, name);
}

/* --- Values of a list into a row --- */

static int write_varints(Reader run, int64_t count, uint8_t *row) {
    uint64_t value;
    for (int64_t n = 0; n < count; n++) {
        if (!read_varint(&run, &value)) return 0;
        memcpy(row + 8 * n, &value, sizeof value);
    }
    return run.begin == run.end;
}

static int write_bytes(Reader value, const Field *field, const Target *target, uint8_t *row) {
    size_t size = left(&value), before = field->prefix.size;
    if (field->is_place) {
        const Record *record = target->record;
        int64_t begin = value.begin - record->file->bytes;
        int64_t place[3] = {record->file_number, begin, (int64_t)size};
        if (size < 1 || size > UINT32_MAX) return 0;
        memcpy(row, place, sizeof place);
        return 1;
    }
    if (size < before || size - before != (size_t)field->count) return 0;
    if (before && memcmp(value.begin, field->prefix.bytes, before) != 0) return 0;
    memcpy(row, value.begin + before, size - before);
    return 1;
}

/* Packed numbers, or the only value of a bytes list. */
static inline int write_run(const Field *field, Reader run, const Target *target, uint8_t *row) {
    if (field->list == BYTES_LIST) return write_bytes(run, field, target, row);
    if (field->list == INT64_LIST) return write_varints(run, field->count, row);
    if (left(&run) / 4 != (size_t)field->count || left(&run) % 4) return 0;
    if (field->count == 1)
        memcpy(row, run.begin, 4); /* Inline. */
    else
        memcpy(row, run.begin, left(&run));
    return 1;
}

static int write_unpacked(const Field *field, Reader list, uint8_t *row) {
    int is_float = field->list == FLOAT_LIST;
    uint8_t tag = is_float ? TAG_FLOAT : TAG_INTEGER;
    for (int64_t n = 0; n < field->count; n++) {
        if (list.begin == list.end || *list.begin++ != tag) return 0;
        uint64_t value;
        if (is_float) {
            if (left(&list) < 4) return 0;
            memcpy(row + 4 * n, list.begin, 4);
            list.begin += 4;
        } else {
            if (!read_varint(&list, &value)) return 0;
            memcpy(row + 8 * n, &value, sizeof value);
        }
    }
    return list.begin == list.end;
}

/* Write the list of a feature that isn't empty. Returns where its run begins, or NULL if it is
 * something else; the feature's begin if numbers aren't packed. */
static inline const uint8_t *write_feature(const Field *field, Reader feature, const Target *target,
                                           uint8_t *row) {
    Reader list, run;
    if (!read_last(feature, (uint8_t)(field->list << 3 | SIZED), &list)) return NULL;
    if (list.begin < list.end && *list.begin == TAG_1) {
        if (!read_last(list, TAG_1, &run)) return NULL;
        return write_run(field, run, target, row) ? run.begin : NULL;
    }
    if (field->list == BYTES_LIST) return NULL;
    return write_unpacked(field, list, row) ? feature.begin : NULL;
}

/* --- Examples --- */

int64_t field_bytes(const Field *field) {
    if (field->is_place) return 3 * (int64_t)sizeof(int64_t);
    return field->list == BYTES_LIST ? field->count : (field->list == FLOAT_LIST ? 4 : 8) * field->count;
}

static size_t hash_of(const uint8_t *bytes, size_t size) { /* FNV-1a */
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t n = 0; n < size; n++) hash = (hash ^ bytes[n]) * 0x100000001B3u;
    return (size_t)(hash ^ hash >> 32);
}

static inline int is_named(const Field *field, const uint8_t *bytes, size_t size) {
    return field->name.size == size && are_equal(field->name.bytes, bytes, size);
}

/* The slot of a name, or the free one that it would take. */
NOT_INLINED static size_t slot_of(const Schema *schema, const uint8_t *bytes, size_t size) {
    size_t slot = hash_of(bytes, size) & schema->mask;
    while (schema->slots[slot] >= 0 && !is_named(&schema->fields[schema->slots[slot]], bytes, size))
        slot = (slot + 1) & schema->mask;
    return slot;
}

void schema_enter(Schema *schema) {
    for (int64_t n = 0; n < schema->count; n++) {
        Field *field = &schema->fields[n];
        size_t slot = slot_of(schema, field->name.bytes, field->name.size);
        field->next = schema->slots[slot];
        schema->slots[slot] = n;
        if (field->name.size > schema->longest) schema->longest = field->name.size;
    }
    for (int64_t n = 0; n < schema->count; n++) {
        Field *field = &schema->fields[n];
        size_t slot = slot_of(schema, field->name.bytes, field->name.size);
        field->is_alone = schema->slots[slot] == n && field->next < 0;
    }
}

/* The first field of this name, or -1. Most records have their features in the same order, so the
 * one after the `last` is likely. */
static inline int64_t field_of(const Schema *schema, Reader name, int64_t last) {
    size_t size = left(&name);
    int64_t next = last + 1 < schema->count ? last + 1 : 0;
    if (schema->fields[next].is_alone && is_named(&schema->fields[next], name.begin, size))
        return next;
    return size > schema->longest ? -1 : schema->slots[slot_of(schema, name.begin, size)];
}

/* Whether no entry before `end` has this name; 0 if there are too many to compare. */
NOT_INLINED static int is_first(Reader payload, const uint8_t *end, Reader wanted) {
    Reader features, name, feature;
    for (int compared = 0; payload.begin < payload.end;) {
        if (*payload.begin != TAG_1) {
            payload.begin = end_of_field(payload);
            if (payload.begin == NULL) return 0;
            continue;
        }
        if (!read_field(&payload, TAG_1, &features)) return 0;
        while (features.begin < features.end) {
            if (features.begin == end) return 1;
            if (compared++ == MOST_COMPARED || !read_entry(&features, &name, &feature)) return 0;
            if (left(&name) == left(&wanted) && are_equal(name.begin, wanted.begin, left(&name)))
                return 0;
        }
    }
    return 0;
}

static int write_default(const Field *field, uint8_t *row) {
    if (field->default_row == NULL) return 0;
    memcpy(row, field->default_row, (size_t)field->row_bytes);
    return 1;
}

/* Write what an entry has without parsing it again, if it starts with the same bytes (name and
 * lengths) as the entry at this place in the previous record. Returns its end, or NULL. */
static inline const uint8_t *write_alike(const Schema *schema, const Head *head, Reader features,
                                         const Target *target) {
    const uint8_t *entry = features.begin;
    if (head->bytes == NULL || head->entry_size > left(&features)) return NULL;
    if (!are_equal(head->bytes, entry, head->size)) return NULL;
    if (head->field >= 0) {
        Reader run = {entry + head->size, entry + head->entry_size};
        uint8_t *row = row_of(schema, target, head->field);
        if (!write_run(&schema->fields[head->field], run, target, row)) return NULL;
    }
    return entry + head->entry_size;
}

/* Write what an entry has, and note how it begins. Returns the number of its field, -1 if it isn't
 * wanted, or -2 if it isn't taken. */
static inline int64_t write_entry(const Schema *schema, Reader whole, Reader *features, Head *head,
                                  int64_t last, const Target *target, int64_t *written) {
    Reader name, feature;
    const uint8_t *entry = features->begin, *run = NULL;
    if (!read_entry(features, &name, &feature)) return -2;
    if (feature.begin == feature.end) { /* As if the record lacked it. */
        /* TensorFlow passes over an empty one after another, Protocol Buffers doesn't. */
        return is_first(whole, entry, name) ? -1 : -2;
    }
    int64_t first = field_of(schema, name, last);
    for (int64_t n = first; n >= 0; n = schema->fields[n].next) {
        run = write_feature(&schema->fields[n], feature, target, row_of(schema, target, n));
        if (run == NULL) return -2;
        *written += !mark(target, n);
    }
    if (feature.end != features->begin) return first; /* The name follows. */
    if (first < 0) run = feature.begin;
    int is_alone = first < 0 || (run != feature.begin && schema->fields[first].is_alone);
    if (head != NULL && is_alone)
        *head = (Head){entry, (size_t)(run - entry), (size_t)(feature.end - entry), first};
    return first;
}

/* Of several features of one name, each is written, and the last one stays. */
static int parse_example(const Schema *schema, Reader payload, const Target *target) {
    Head *heads = target->scratch->heads;
    const Reader whole = payload;
    Reader features;
    int64_t last = -1, place = 0, written = 0;
    target->scratch->record++;
    while (payload.begin < payload.end) {
        if (*payload.begin != TAG_1) {
            payload.begin = end_of_field(payload);
            if (payload.begin == NULL) return 0;
            continue;
        }
        if (!read_field(&payload, TAG_1, &features)) return 0;
        for (; features.begin < features.end; place++) {
            Head *head = place < MOST_HEADS ? &heads[place] : NULL;
            const uint8_t *end = head ? write_alike(schema, head, features, target) : NULL;
            if (end != NULL) {
                features.begin = end;
                if (head->field < 0) continue;
                last = head->field;
                written += !mark(target, last);
                continue;
            }
            int64_t field = write_entry(schema, whole, &features, head, last, target, &written);
            if (field == -2) return 0;
            if (field >= 0) last = field;
        }
    }
    for (int64_t n = 0; n < schema->count && written < schema->count; n++)
        if (!mark(target, n) && !write_default(&schema->fields[n], row_of(schema, target, n)))
            return 0;
    return 1;
}

/* --- IRHeaders --- */

static int parse_header(const Schema *schema, Reader payload, const Target *target) {
    if (left(&payload) < IRHEADER_BYTES) return 0;
    const uint8_t *header = payload.begin, *behind = header + IRHEADER_BYTES;
    uint64_t labels = u32_at(header);
    if (4 * labels > (uint64_t)(payload.end - behind)) return 0;
    const Reader content = {behind + 4 * labels, payload.end};
    for (int64_t n = 0; n < schema->count; n++) {
        const Field *field = &schema->fields[n];
        uint8_t *into = row_of(schema, target, n);
        if (field->part == CONTENT) {
            if (field->list != BYTES_LIST || !write_bytes(content, field, target, into))
                return 0;
        } else if (field->part == ID || field->part == ID2) {
            if (field->list != BYTES_LIST || field->is_place || field->count != 8) return 0;
            memcpy(into, header + (field->part == ID ? ID_AT : ID2_AT), 8);
        } else {
            int is_own = labels == 0 && field->part != LABELS;
            int is_behind = labels > 0 && field->part != OWN_LABEL;
            if (field->list != FLOAT_LIST || !(is_own || is_behind)) return 0;
            if ((is_own ? 1 : labels) != (uint64_t)field->count) return 0;
            memcpy(into, is_own ? header + LABEL_AT : behind, 4 * (size_t)field->count);
        }
    }
    return 1;
}

/* --- Framing --- */

/* Whether the masked CRC behind so many bytes is theirs. */
static int crc_fits(const uint8_t *bytes, size_t size) {
    uint32_t crc = crc32c(bytes, size);
    return ((crc >> 15 | crc << 17) + MASK_DELTA) == u32_at(bytes + size);
}

/* What a TFRecord holds; `size` is what the index says, or 0. */
static int read_tfrecord(const uint8_t *record, size_t there, size_t size, int verify,
                         Reader *payload) {
    const uint8_t *data = record + LENGTH_BYTES + CRC_BYTES;
    if (there < OVERHEAD_BYTES) return 0;
    uint64_t length = u32_at(record) | (uint64_t)u32_at(record + 4) << 32;
    if (length > there - OVERHEAD_BYTES || (size && size != length + OVERHEAD_BYTES)) return 0;
    if (verify && !(crc_fits(record, LENGTH_BYTES) && crc_fits(data, (size_t)length))) return 0;
    *payload = (Reader){data, data + length};
    return 1;
}

/* Whether a part shows no damage: no magic number where a writer would have cut, zeros as padding,
 * and behind it another record, or nothing. */
static int is_part(const uint8_t *data, size_t size, size_t padded, size_t there, int look_behind) {
    for (size_t i = 0; i + 4 <= padded; i += 4)
        if (u32_at(data + i) == MAGIC) return 0;
    for (size_t i = size; i < padded; i++)
        if (data[i] != 0) return 0;
    if (!look_behind || padded == there) return 1;
    return there - padded >= PART_BYTES && u32_at(data + padded) == MAGIC &&
           u32_at(data + padded + 4) >> 29 < 2;
}

static int read_recordio(const uint8_t *record, size_t there, size_t size, int verify,
                         Reader *payload) {
    const uint8_t *data = record + PART_BYTES;
    if (there < PART_BYTES || u32_at(record) != MAGIC) return 0;
    uint32_t word = u32_at(record + 4);
    size_t length = word & 0x1FFFFFFF, padded = (length + 3) & ~(size_t)3;
    if (word >> 29 != 0 || padded > there - PART_BYTES) return 0;
    if (size && size != padded + PART_BYTES) return 0;
    if (verify && !is_part(data, length, padded, there - PART_BYTES, size == 0)) return 0;
    *payload = (Reader){data, data + length};
    return 1;
}

int record_parse(const Schema *schema, const Record *record, uint8_t *const *columns,
                 Scratch *scratch) {
    File *file = record->file;
    int64_t offset = record->offset, size = record->size;
    if (file->bytes == NULL || offset < 0 || (uint64_t)offset > file->size) return 0;
    if (file->sizes != NULL && size < 1) return 0;
    const uint8_t *begin = file->bytes + offset;
    size_t there = file->size - (size_t)offset;
    const Target target = {record, columns, scratch};
    int verify = !record->is_checked, is_right = 0;
    Reader payload;
    if (file->kind == TFRECORD_EXAMPLE)
        is_right = read_tfrecord(begin, there, (size_t)size, verify, &payload) &&
                   parse_example(schema, payload, &target);
    else if (file->kind == RECORDIO_IRHEADER)
        is_right = offset % 4 == 0 && read_recordio(begin, there, (size_t)size, verify, &payload) &&
                   parse_header(schema, payload, &target);
    if (verify && is_right) file->checked[record->number] = 1;
    return is_right;
}
