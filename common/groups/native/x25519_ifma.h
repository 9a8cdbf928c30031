/* X25519 of many points with one scalar, eight at a time (x86-64 AVX-512 IFMA). */
#ifndef FLORIST_X25519_IFMA_H
#define FLORIST_X25519_IFMA_H

#include <stddef.h>
#include <stdint.h>

/* out[i] = X25519(scalar, points[i]) for i < n: the same contract as florist_x25519_avx2, in groups
 * of 8. Call only if florist_ifma_available(). */
void florist_x25519_ifma(uint8_t *out, const uint8_t *points, size_t n, const uint8_t scalar[32]);

#endif
