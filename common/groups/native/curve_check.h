/* Checks that u-coordinates are on the curve and not on its twist. */
#ifndef FLORIST_CURVE_CHECK_H
#define FLORIST_CURVE_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Random bytes per point. */
#define CHECK_ROUNDS 16

/* Returns 1 if each point (32 bytes) is the canonical encoding of the u-coordinate of a point on the
 * curve other than (0, 0). Otherwise returns 0, except with probability 2^-128 over `random`, which
 * has CHECK_ROUNDS bytes per point, uniform and unknown to whoever chose the points. Returns -1 if
 * memory is exhausted. Time and addresses depend on `random` and `points`; neither is secret. */
int florist_all_on_curve(const uint8_t *points, size_t count, const uint8_t *random);

/* The same, with CHECK_ROUNDS random bytes per group of CHECK_SHARED_BY points; the last group may be
 * smaller. Call only if florist_ifma_available(). */
#define CHECK_SHARED_BY 8
int florist_all_on_curve_ifma(const uint8_t *points, size_t count, const uint8_t *random);

#endif
