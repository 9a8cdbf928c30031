/* Whether the compiler and the CPU support AVX-512 IFMA. */
#ifndef FLORIST_IFMA_H
#define FLORIST_IFMA_H

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 9)
#define FLORIST_HAVE_IFMA
#endif

/* 1 if this build, this CPU and its OS support the functions whose names end in _ifma, else 0. If
 * they do not, do not call those functions: they abort or contain illegal instructions. */
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
