#include "idct.h"

#include "../vectors.h"

#ifndef HAVE_X86
void idct_four(int16_t *coefficients, const int16_t *steps, uint8_t *first, uint8_t *second,
               size_t stride) {
    (void)coefficients, (void)steps, (void)first, (void)second, (void)stride;
}
#else
#include <immintrin.h>

/* Loeffler, Ligtenberg and Moschytz' algorithm as libjpeg's jidctint has it, in numbers of 16 bits
 * that become 32 in sums of two products. A row is a vector, with a block in each 128 bits. */
enum {
    FACTOR_BITS = 13,
    SPARE_BITS = 2, /* That the first pass leaves for the second. */
    FIRST_SHIFT = FACTOR_BITS - SPARE_BITS,
    SECOND_SHIFT = FACTOR_BITS + SPARE_BITS + 3,
    F0_298 = 2446, F0_390 = 3196, F0_541 = 4433, F0_765 = 6270, F0_899 = 7373, F1_175 = 9633,
    F1_501 = 12299, F1_847 = 15137, F1_961 = 16069, F2_053 = 16819, F2_562 = 20995, F3_072 = 25172,
};

/* Numbers of 32 bits, of the lower and the upper half of each block's row. */
typedef struct {
    __m512i low, high;
} Wide;

#define LANES VBMI static inline __attribute__((always_inline))

LANES Wide plus(Wide a, Wide b) {
    return (Wide){_mm512_add_epi32(a.low, b.low), _mm512_add_epi32(a.high, b.high)};
}

LANES Wide minus(Wide a, Wide b) {
    return (Wide){_mm512_sub_epi32(a.low, b.low), _mm512_sub_epi32(a.high, b.high)};
}

LANES Wide pairs(__m512i a, __m512i b) {
    return (Wide){_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)};
}

/* Of each pair, a * by_a + b * by_b. */
LANES Wide products(Wide pairs, int by_a, int by_b) {
    __m512i factors = _mm512_set1_epi32((int)((uint32_t)by_b << 16 | (uint16_t)by_a));
    return (Wide){_mm512_madd_epi16(pairs.low, factors), _mm512_madd_epi16(pairs.high, factors)};
}

/* With FACTOR_BITS more, and half of what is shifted away. */
LANES Wide scaled(__m512i a, int shift) {
    Wide upper = pairs(_mm512_setzero_si512(), a);
    __m512i half = _mm512_set1_epi32(1 << (shift - 1));
    return plus((Wide){_mm512_srai_epi32(upper.low, 16 - FACTOR_BITS),
                       _mm512_srai_epi32(upper.high, 16 - FACTOR_BITS)},
                (Wide){half, half});
}

LANES __m512i narrowed(Wide a, int shift) {
    return _mm512_packs_epi32(_mm512_srai_epi32(a.low, shift), _mm512_srai_epi32(a.high, shift));
}

/* Along the columns of each block. */
LANES void transform(__m512i rows[8], int shift) {
    Wide even = pairs(rows[2], rows[6]);
    Wide by_2 = products(even, F0_541 + F0_765, F0_541);
    Wide by_6 = products(even, F0_541, F0_541 - F1_847);
    Wide sum = scaled(_mm512_add_epi16(rows[0], rows[4]), shift);
    Wide difference = scaled(_mm512_sub_epi16(rows[0], rows[4]), shift);
    Wide evens[4] = {plus(sum, by_2), plus(difference, by_6), minus(difference, by_6),
                     minus(sum, by_2)};

    Wide odd = pairs(_mm512_add_epi16(rows[7], rows[3]), _mm512_add_epi16(rows[5], rows[1]));
    Wide by_73 = products(odd, F1_175 - F1_961, F1_175);
    Wide by_51 = products(odd, F1_175, F1_175 - F0_390);
    Wide outer = pairs(rows[7], rows[1]), inner = pairs(rows[5], rows[3]);
    Wide odds[4] = {plus(products(outer, -F0_899, F1_501 - F0_899), by_51),
                    plus(products(inner, -F2_562, F3_072 - F2_562), by_73),
                    plus(products(inner, F2_053 - F2_562, -F2_562), by_51),
                    plus(products(outer, F0_298 - F0_899, -F0_899), by_73)};
    for (int i = 0; i < 4; i++) {
        rows[i] = narrowed(plus(evens[i], odds[i]), shift);
        rows[7 - i] = narrowed(minus(evens[i], odds[i]), shift);
    }
}

/* Each block's rows become its columns. */
LANES void transpose(__m512i rows[8]) {
    __m512i twos[8], fours[8];
    for (int i = 0; i < 4; i++) {
        twos[2 * i] = _mm512_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        twos[2 * i + 1] = _mm512_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++) {
            __m512i a = twos[4 * i + half], b = twos[4 * i + 2 + half];
            fours[4 * i + 2 * half] = _mm512_unpacklo_epi32(a, b);
            fours[4 * i + 2 * half + 1] = _mm512_unpackhi_epi32(a, b);
        }
    for (int i = 0; i < 4; i++) {
        rows[2 * i] = _mm512_unpacklo_epi64(fours[i], fours[4 + i]);
        rows[2 * i + 1] = _mm512_unpackhi_epi64(fours[i], fours[4 + i]);
    }
}

/* Where a block has nothing but its first row, libjpeg shifts that, and what has too many bits for
 * it, as no encoder writes it, comes out as something else. */
LANES void shift_alone(__m512i rows[8], __m512i first, __m512i others) {
    __mmask8 empty = _mm512_cmpeq_epi64_mask(others, _mm512_setzero_si512());
    empty &= (__mmask8)((empty >> 1 & 0x55) | (empty << 1 & 0xAA)); /* Both halves of a row. */
    for (int i = 0; i < 8; i++)
        rows[i] = _mm512_mask_slli_epi16(
            rows[i], _mm512_movepi16_mask(_mm512_maskz_set1_epi64(empty, -1)), first, SPARE_BITS);
}

/* Transposed pixels, two rows of them in each block's 128 bits, become two rows of two blocks. */
LANES void store(__m512i rows, uint8_t *first, uint8_t *second, size_t stride) {
    const __m512i order = _mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7);
    rows = _mm512_permutexvar_epi64(order, _mm512_xor_si512(rows, _mm512_set1_epi8(-128)));
    _mm_storeu_si128((__m128i *)first, _mm512_castsi512_si128(rows));
    _mm_storeu_si128((__m128i *)(first + stride), _mm512_extracti32x4_epi32(rows, 1));
    _mm_storeu_si128((__m128i *)second, _mm512_extracti32x4_epi32(rows, 2));
    _mm_storeu_si128((__m128i *)(second + stride), _mm512_extracti32x4_epi32(rows, 3));
}

VBMI void idct_four(int16_t *coefficients, const int16_t *steps, uint8_t *first, uint8_t *second,
                    size_t stride) {
    const __m512i most = _mm512_set1_epi16(INT16_MAX >> SPARE_BITS);
    __m512i rows[8], others = _mm512_setzero_si512();
    for (int i = 0; i < 8; i++) {
        __m512i row = _mm512_load_si512(coefficients + IDCT_ROW * i);
        if (i > 0) others = _mm512_or_si512(others, row);
        rows[i] = _mm512_mullo_epi16(row, _mm512_load_si512(steps + IDCT_ROW * i));
        _mm512_store_si512(coefficients + IDCT_ROW * i, _mm512_setzero_si512());
    }
    __m512i alone = rows[0];
    transform(rows, FIRST_SHIFT);
    if (__builtin_expect(_mm512_cmpgt_epu16_mask(_mm512_abs_epi16(alone), most) != 0, 0))
        shift_alone(rows, alone, others);
    transpose(rows);
    transform(rows, SECOND_SHIFT);
    __m512i bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = _mm512_packs_epi16(rows[i], rows[i + 4]);
    for (int half = 0; half < 2; half++) { /* Of the block's rows. */
        __m512i left[2] = {_mm512_unpacklo_epi8(bytes[0], bytes[1]),
                           _mm512_unpacklo_epi8(bytes[2], bytes[3])};
        __m512i right[2] = {_mm512_unpackhi_epi8(bytes[0], bytes[1]),
                            _mm512_unpackhi_epi8(bytes[2], bytes[3])};
        __m512i a = half ? _mm512_unpackhi_epi16(left[0], left[1])
                         : _mm512_unpacklo_epi16(left[0], left[1]);
        __m512i b = half ? _mm512_unpackhi_epi16(right[0], right[1])
                         : _mm512_unpacklo_epi16(right[0], right[1]);
        size_t row = 4 * (size_t)half * stride;
        store(_mm512_unpacklo_epi32(a, b), first + row, second + row, stride);
        row += 2 * stride;
        store(_mm512_unpackhi_epi32(a, b), first + row, second + row, stride);
    }
}
#endif
