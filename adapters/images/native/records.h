/* Features of records, from the bytes of a file into rows of columns: the one parser of
 * tf.train.Example, for all fields that are wanted at once; and what an IRHeader holds.
 *
 * It takes what adapters/records/example.py takes, and reads the same from it. It says nothing of a
 * record that it doesn't take: Python reads that one by itself, or says what is wrong with it.
 */
#ifndef ADAPTERS_IMAGES_RECORDS_H
#define ADAPTERS_IMAGES_RECORDS_H

#include <stddef.h>
#include <stdint.h>

/* How a file frames its records, and what they are. */
typedef enum {
    TFRECORD_EXAMPLE = 1,  /* A tf.train.Example. */
    RECORDIO_IRHEADER = 2, /* An IRHeader, and bytes behind it; in one part. */
} Kind;

typedef enum { BYTES_LIST = 1, FLOAT_LIST = 2, INT64_LIST = 3 } List;

/* What a field is in a record with an IRHeader. */
typedef enum {
    CONTENT = 0,   /* The bytes behind header and labels. */
    LABEL = 1,     /* As many labels as are wanted, in the header or behind it. */
    OWN_LABEL = 2, /* The header's own label, with none behind it. */
    LABELS = 3,    /* Labels behind the header. */
    ID = 4,
    ID2 = 5,
} Part;

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Text;

/* A feature that is wanted. Its row is `count` int64, float32 or bytes; or, with `is_place`, three
 * int64: number of the file, first byte and size of the only value of a bytes list. */
typedef struct {
    Text name;
    List list;
    Part part;
    int is_place;
    int64_t count;
    Text prefix;                /* Bytes of the value before those that go into the row. */
    const uint8_t *default_row; /* If a record lacks the feature; NULL: it is not taken. */
    int64_t next;               /* Another field of this name, or -1. */
    int is_alone;               /* Whether there is no other field of this name. */
    int64_t row_bytes;          /* As `field_bytes` has it. */
} Field;

/* The fields that are wanted, and a hash table of their names. */
typedef struct {
    Field *fields;
    int64_t count;
    int64_t *slots; /* First field of each name; -1: a free slot. */
    size_t mask;    /* Number of slots, a power of two, less 1. */
    size_t longest; /* Size of the longest name. */
} Schema;

/* Bytes of a row. */
int64_t field_bytes(const Field *field);

/* Enter the fields into the table: at least twice as many slots, all -1. It sets their `next` and
 * `is_alone`. */
void schema_enter(Schema *schema);

typedef struct {
    const uint8_t *bytes;
    size_t size;
    int64_t records;
    const int64_t *offsets; /* (records) */
    const int64_t *sizes;   /* (records), with framing; NULL: only the record itself says it. */
    uint8_t *checked;       /* (records), 1: not to be verified; set where that was done. */
    Kind kind;
    const char *path; /* Or NULL: it has no name by which it could be truncated. */
    uint64_t inode;
} File;

/* A record that is wanted. */
typedef struct {
    File *file;
    int64_t file_number; /* For places. */
    int64_t number;      /* In the file. */
    int64_t row;
    int64_t offset, size; /* As the file's arrays have them; 0 if there are no sizes. */
    int is_checked;
} Record;

/* First bytes of an entry of the previous record, up to its values: its name and lengths. */
typedef struct {
    const uint8_t *bytes; /* Or NULL. */
    size_t size, entry_size;
    int64_t field; /* -1 if it isn't wanted. */
} Head;

enum { MOST_HEADS = 64 };

/* For the records of one call; all zeros at first. */
typedef struct {
    uint64_t *marks; /* (fields): the last record that had the field. */
    uint64_t record; /* Counted from 1. */
    Head heads[MOST_HEADS];
} Scratch;

/* Write the features of a record into a row of each column; 0 if it isn't taken, and the row is
 * undefined. */
int record_parse(const Schema *schema, const Record *record, uint8_t *const *columns,
                 Scratch *scratch);

#endif
