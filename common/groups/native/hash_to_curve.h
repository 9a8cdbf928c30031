/* RFC 9380's encoding of messages to Curve25519, in its two halves. See hash_to_group.py. */
#ifndef FLORIST_HASH_TO_CURVE_H
#define FLORIST_HASH_TO_CURVE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that a message is expanded to before it is reduced modulo p: 255 bits and 128 to spare. */
#define UNIFORM_BYTES 48

/* expand_message_xmd with SHA-512 of message i, data[offsets[i]] up to data[offsets[i + 1]], into
 * out[48 i]. `dst` is at most 255 bytes. */
void florist_expand_messages(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                             const uint8_t *dst, size_t dst_bytes);

/* The u-coordinate, 32 bytes, of Elligator2's point for each 48-byte big-endian number.
 * The sequence of instructions does not depend on the numbers. */
void florist_elligator2(uint8_t *out, const uint8_t *uniform, size_t count);

/* The same, eight at a time. Call only if florist_ifma_available(). */
void florist_expand_messages_ifma(uint8_t *out, const uint8_t *data, const int64_t *offsets,
                                  size_t count, const uint8_t *dst, size_t dst_bytes);
void florist_elligator2_ifma(uint8_t *out, const uint8_t *uniform, size_t count);

#endif
