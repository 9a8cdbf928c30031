/* X25519 on eight points at a time, by Intel's multi-buffer library (AVX-512 IFMA). */
#ifndef FLORIST_X25519_MULTIBUFFER_H
#define FLORIST_X25519_MULTIBUFFER_H

#include <stddef.h>
#include <stdint.h>

/* Whether this build has the library at all, and whether this CPU can run it. */
int florist_x25519_multibuffer_built(void);
int florist_x25519_multibuffer_available(void);

/* out[i] = scalar * points[i], 32 bytes each. 0, or -1 if the library refuses. Constant time. */
int florist_x25519_multibuffer(uint8_t *out, const uint8_t *points, size_t count,
                               const uint8_t scalar[32]);

#endif
