/* Are all of these u-coordinates on the curve, rather than on its twist? */
#ifndef FLORIST_CURVE_CHECK_H
#define FLORIST_CURVE_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Random bytes needed for each point. */
#define CHECK_ROUNDS 16

/* 1 if each of the points, 32 bytes each, is the encoding below p of the u-coordinate of a point on
 * the curve other than (0, 0). 0 if not, save with probability 2^-128 over `random`: that is
 * CHECK_ROUNDS bytes for each point, uniform and unknown to whoever chose the points. -1 if there
 * is no memory. Time and addresses depend on `random` and `points`; neither is secret. */
int florist_all_on_curve(const uint8_t *points, size_t count, const uint8_t *random);

/* The same with as many random bytes for every CHECK_SHARED_BY points, the last ones of which may be
 * fewer. Call only if florist_ifma_available(). */
#define CHECK_SHARED_BY 8
int florist_all_on_curve_ifma(const uint8_t *points, size_t count, const uint8_t *random);

#endif
