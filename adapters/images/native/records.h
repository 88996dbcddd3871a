/* Images and labels in records, as adapters/records finds them.
 *
 * What is read here is what writers write: one Features message, in each entry the name before the
 * feature, in each feature one list; one part of RecordIO. Of all else, and of all that is damaged,
 * nothing is said: it is for Python to read, or to say what is wrong.
 */
#ifndef ADAPTERS_IMAGES_RECORDS_H
#define ADAPTERS_IMAGES_RECORDS_H

#include <stddef.h>
#include <stdint.h>

/* How records stand in a file, and image and label in a record. */
typedef enum {
    TFRECORD_EXAMPLE = 1,  /* Two features of a tf.train.Example. */
    RECORDIO_IRHEADER = 2, /* Behind an IRHeader with one label. */
} Kind;

typedef enum { NO_LABEL = 0, INTEGER = 1, FLOATING = 2 } LabelKind;

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Name;

/* What a record holds; `kind` is NO_LABEL where nothing is said of it. */
typedef struct {
    int64_t kind;
    int64_t begin, size; /* Of the image, from the file's first byte. */
    union {
        int64_t integer;
        double floating;
    } label;
} Contents;

/* Look at the record that begins at `offset`.
 *
 * `record_size` is what an index says, 0 where none does. With `verify`, CRCs are compared, and
 * what else shows damage is looked for. */
Contents record_look(const uint8_t *file, size_t file_size, size_t offset, size_t record_size,
                     int kind, int verify, Name image, Name label);

#endif
