/* X25519 of many points with one scalar, four at a time (x86-64 AVX2 + FMA). */
#ifndef FLORIST_X25519_AVX2_H
#define FLORIST_X25519_AVX2_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if this CPU and its OS support florist_x25519_avx2, else 0. */
int florist_x25519_avx2_available(void);

/* out[i] = X25519(scalar, points[i]) (RFC 7748) for i < n, 32 bytes each.
 *
 * The scalar is clamped here and the top bit of every point is ignored, as in
 * the RFC; a point of low order gives 32 zero bytes, which the CALLER must
 * reject if its protocol requires it. `out == points` is allowed; any other
 * overlap is not. Stateless and thread-safe; no branch or address depends on a
 * secret. Call only if florist_x25519_avx2_available(): otherwise the function
 * is a stub that aborts. Points are processed in groups of 4, so n = 1 costs as
 * much as n = 4. */
void florist_x25519_avx2(uint8_t *out, const uint8_t *points, size_t n, const uint8_t scalar[32]);

#ifdef __cplusplus
}
#endif

#endif
