/* The encoding of messages to Curve25519 of RFC 9380, in two parts. See hash_to_group.py. */
#ifndef FLORIST_HASH_TO_CURVE_H
#define FLORIST_HASH_TO_CURVE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes to which a message is expanded before it is reduced modulo p: 255 bits and 128 more. */
#define UNIFORM_BYTES 48

/* Writes expand_message_xmd with SHA-512 of message i, from data[offsets[i]] to before
 * data[offsets[i + 1]], to out[48 i]. `dst` has at most 255 bytes. */
void florist_expand_messages(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                             const uint8_t *dst, size_t dst_bytes);

/* Writes the u-coordinate (32 bytes) of the Elligator 2 point for each 48-byte big-endian number.
 * The sequence of instructions does not depend on the numbers. */
void florist_elligator2(uint8_t *out, const uint8_t *uniform, size_t count);

/* The same, eight at a time. Call only if florist_ifma_available(). */
void florist_expand_messages_ifma(uint8_t *out, const uint8_t *data, const int64_t *offsets,
                                  size_t count, const uint8_t *dst, size_t dst_bytes);
void florist_elligator2_ifma(uint8_t *out, const uint8_t *uniform, size_t count);

#endif
