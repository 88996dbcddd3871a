/* CRC-32C. */
#ifndef ADAPTERS_IMAGES_CRCS_H
#define ADAPTERS_IMAGES_CRCS_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const uint8_t *bytes, size_t size);

#endif
