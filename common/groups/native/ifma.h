/* Whether AVX-512 IFMA is there: for the compiler, and for the CPU. */
#ifndef FLORIST_IFMA_H
#define FLORIST_IFMA_H

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 9)
#define FLORIST_HAVE_IFMA
#endif

/* 1 if this build, this CPU and its OS can run the functions whose names end in _ifma, else 0. Where
 * they cannot, do not call them: they abort, or are not even instructions. */
static inline int florist_ifma_available(void)
{
#ifdef FLORIST_HAVE_IFMA
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512ifma");
#else
    return 0;
#endif
}

#endif
