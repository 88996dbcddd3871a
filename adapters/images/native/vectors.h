/* Functions that are compiled for more than one kind of processor: one body, INLINE, in each. */
#ifndef ADAPTERS_VECTORS_H
#define ADAPTERS_VECTORS_H

/* 0 for plain C alone, as on a processor that has none of these; set when the module is loaded. */
extern int vectors_are_used;

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#define AVX2 __attribute__((target("avx2")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define INLINE static inline __attribute__((always_inline))

/* Whether this processor has a kind of instructions that may be used. */
#define SUPPORTS(kind) (vectors_are_used && __builtin_cpu_supports(kind))

/* Whether this processor picks any bytes out of 64, and has what VBMI says beside that. */
static inline int has_vbmi(void) {
    return SUPPORTS("avx512bw") && SUPPORTS("avx512vl") && SUPPORTS("avx512vbmi");
}
#else
#define INLINE static inline
static inline int has_vbmi(void) { return 0; }
#endif

#endif
