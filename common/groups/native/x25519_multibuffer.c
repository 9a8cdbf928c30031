#include "x25519_multibuffer.h"

#ifdef HAVE_CRYPTO_MB

#include <crypto_mb/cpu_features.h>
#include <crypto_mb/status.h>
#include <crypto_mb/x25519.h>
#include <stdlib.h>

#include "x25519_avx2.h"

#define LANES 8

/* The library's conversions share an object file with variants for OpenSSL's BIGNUM, which nothing
 * here calls. These stand in for OpenSSL, so that the archive links without it. */
int BN_num_bits(const void *number);
int BN_bn2lebinpad(const void *number, unsigned char *to, int length);

int BN_num_bits(const void *number)
{
    (void)number;
    abort();
}

int BN_bn2lebinpad(const void *number, unsigned char *to, int length)
{
    (void)number, (void)to, (void)length;
    abort();
}

int florist_x25519_multibuffer_built(void)
{
    return 1;
}

int florist_x25519_multibuffer_available(void)
{
    /* On some CPUs the library is "applicable" for other algorithms only, so ask for this one. */
    return mbx_get_algo_info(MBX_ALGO_X25519) != 0 && florist_x25519_avx2_available();
}

/* Whether u >= 2^255 - 2^16, its top bit ignored. Of such points the library (ipp-crypto 2026.2) gets the last
 * 1,393 below the prime wrong. No honest element is ever one, but a peer could send it. */
static int near_prime(const uint8_t *point)
{
    uint8_t all = point[31] | 0x80;
    for (int i = 2; i < 31; i++)
        all &= point[i];
    return all == 0xff;
}

int florist_x25519_multibuffer(uint8_t *out, const uint8_t *points, size_t count,
                               const uint8_t scalar[32])
{
    uint8_t unused[32];
    const uint8_t *scalars[LANES], *sources[LANES];
    uint8_t *targets[LANES];
    for (size_t done = 0; done < count; done += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            /* Past the end, repeat the last point and drop the result. */
            const size_t i = done + lane;
            scalars[lane] = scalar;
            sources[lane] = points + 32 * (i < count ? i : count - 1);
            targets[lane] = i < count ? out + 32 * i : unused;
        }
        const mbx_status status = mbx_x25519_mb8(targets, scalars, sources);
        for (int lane = 0; lane < LANES; lane++) {
            /* A point of low order gives zero, as in every engine; the caller looks for that. */
            const mbx_status one = MBX_GET_STS(status, lane);
            if (one != MBX_STATUS_OK && one != MBX_STATUS_LOW_ORDER_ERR)
                return -1;
            /* Every CPU with AVX-512 IFMA runs the other kernel too. */
            if (near_prime(sources[lane]))
                florist_x25519_avx2(targets[lane], sources[lane], 1, scalar);
        }
    }
    return 0;
}

#else

int florist_x25519_multibuffer_built(void)
{
    return 0;
}

int florist_x25519_multibuffer_available(void)
{
    return 0;
}

int florist_x25519_multibuffer(uint8_t *out, const uint8_t *points, size_t count,
                               const uint8_t scalar[32])
{
    (void)out, (void)points, (void)count, (void)scalar;
    return -1;
}

#endif
