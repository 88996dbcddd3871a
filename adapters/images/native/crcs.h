/* CRC-32C. */
#ifndef ADAPTERS_IMAGES_CRCS_H
#define ADAPTERS_IMAGES_CRCS_H

#include <stddef.h>
#include <stdint.h>

/* Of one part. */
uint32_t crc32c(const uint8_t *bytes, size_t size);

/* Of so many parts of data, each from where it begins to where it ends. */
void crcs32c(const uint8_t *data, const int64_t *begins, const int64_t *ends, size_t count,
             uint32_t *out);

#endif
