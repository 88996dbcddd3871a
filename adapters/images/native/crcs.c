/* CRC-32C of one part of a buffer, or of many.

The processor takes three cycles for eight bytes, and can begin with others in each of them: parts
of one size, as pages are, go by threes. */
#include "crcs.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#include <immintrin.h>
#define SSE42 __attribute__((target("sse4.2")))
#endif

enum { TOGETHER = 3 };

static uint32_t crc_by_table(const uint8_t *bytes, size_t size) {
    static const uint32_t NIBBLES[16] = {
        0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3,
        0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
        0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
    };
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ NIBBLES[crc & 15];
        crc = crc >> 4 ^ NIBBLES[crc & 15];
    }
    return ~crc;
}

#ifdef HAVE_X86
SSE42 static uint32_t rest_of(uint64_t crc, const uint8_t *bytes, size_t size) {
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t eight;
        memcpy(&eight, bytes, sizeof eight);
        crc = _mm_crc32_u64(crc, eight);
    }
    for (; size; bytes++, size--) crc = _mm_crc32_u8((uint32_t)crc, *bytes);
    return ~(uint32_t)crc;
}

SSE42 static void crcs_together(const uint8_t *const parts[TOGETHER], size_t size, uint32_t *out) {
    uint64_t crc[TOGETHER] = {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF};
    size_t at = 0;
    for (; at + 8 <= size; at += 8)
        for (int i = 0; i < TOGETHER; i++) {
            uint64_t eight;
            memcpy(&eight, parts[i] + at, sizeof eight);
            crc[i] = _mm_crc32_u64(crc[i], eight);
        }
    for (int i = 0; i < TOGETHER; i++) out[i] = rest_of(crc[i], parts[i] + at, size - at);
}

static int by_processor(void) { return __builtin_cpu_supports("sse4.2"); }
#endif

uint32_t crc32c(const uint8_t *bytes, size_t size) {
#ifdef HAVE_X86
    if (by_processor()) return rest_of(0xFFFFFFFF, bytes, size);
#endif
    return crc_by_table(bytes, size);
}

void crcs32c(const uint8_t *data, const int64_t *begins, const int64_t *ends, size_t count,
             uint32_t *out) {
    size_t at = 0;
    while (at < count) {
        size_t size = (size_t)(ends[at] - begins[at]);
#ifdef HAVE_X86
        if (count - at >= TOGETHER && by_processor() &&
            ends[at + 1] - begins[at + 1] == (int64_t)size &&
            ends[at + 2] - begins[at + 2] == (int64_t)size) {
            const uint8_t *const parts[TOGETHER] = {data + begins[at], data + begins[at + 1],
                                                    data + begins[at + 2]};
            crcs_together(parts, size, out + at);
            at += TOGETHER;
            continue;
        }
#endif
        out[at] = crc32c(data + begins[at], size);
        at++;
    }
}
