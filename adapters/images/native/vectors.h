/* Functions that are compiled for more than one kind of processor: one body, INLINE, in each. */
#ifndef ADAPTERS_VECTORS_H
#define ADAPTERS_VECTORS_H

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#define AVX2 __attribute__((target("avx2")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define INLINE static inline __attribute__((always_inline))

/* Whether this processor picks any bytes out of 64, and has what VBMI says beside that. */
static inline int has_vbmi(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi");
}
#else
#define INLINE static inline
static inline int has_vbmi(void) { return 0; }
#endif

#endif
