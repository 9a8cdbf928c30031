#include "merkle.h"

/* Messages that are hashed together, so that the compressor can work on several at a time. With as few
 * as it does at a time, each would wait for its block to be written: a fifth slower. */
#define BATCH 8

/* The longest ID whose leaf is one block, which also has 0x00, the salt, 0x80 and the length. */
#define SHORT_BYTES (SHA256_BLOCK - 1 - SALT_BYTES - 1 - 8)

#define NODE_BITS (8 * (1 + 2 * SHA256_BYTES))

/* Leaves of one block each that wait to be hashed together. */
typedef struct {
    size_t count;
    uint8_t blocks[BATCH * SHA256_BLOCK];
    uint8_t *digests[BATCH]; /* where their hashes go */
} short_leaves;

/* The two blocks of each node; the second is the last byte of the right child, and padding. */
typedef struct {
    uint8_t first[BATCH * SHA256_BLOCK], second[BATCH * SHA256_BLOCK];
} node_blocks;

static void start(uint32_t (*states)[8], size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(states[i], SHA256_INITIAL, sizeof SHA256_INITIAL);
}

static void fill_leaf(uint8_t block[SHA256_BLOCK], const uint8_t *salt, const uint8_t *id,
                      size_t bytes)
{
    const size_t length = 1 + SALT_BYTES + bytes;
    memset(block, 0, SHA256_BLOCK);
    memcpy(block + 1, salt, SALT_BYTES);
    if (bytes > 0) /* else there may be no data at all */
        memcpy(block + 1 + SALT_BYTES, id, bytes);
    block[length] = 0x80;
    block[SHA256_BLOCK - 2] = (uint8_t)(8 * length >> 8);
    block[SHA256_BLOCK - 1] = (uint8_t)(8 * length);
}

static void hash_short(short_leaves *leaves, sha256_compressor *compress)
{
    uint32_t states[BATCH][8];
    start(states, leaves->count);
    compress(states, leaves->blocks, leaves->count);
    for (size_t i = 0; i < leaves->count; i++)
        sha256_write(leaves->digests[i], states[i]);
    leaves->count = 0;
}

static void hash_long(uint8_t *digest, const uint8_t *salt, const uint8_t *id, size_t bytes,
                      sha256_compressor *compress)
{
    sha256 hash;
    sha256_start(&hash, compress);
    sha256_update(&hash, (const uint8_t[]){0}, 1);
    sha256_update(&hash, salt, SALT_BYTES);
    sha256_update(&hash, id, bytes);
    sha256_finish(&hash, digest);
}

void florist_leaf_hashes(uint8_t *out, const uint8_t *data, const int64_t *offsets, size_t count,
                         const uint8_t *salts, sha256_compressor *compress)
{
    short_leaves leaves;
    leaves.count = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t *digest = out + SHA256_BYTES * i;
        const uint8_t *salt = salts + SALT_BYTES * i, *id = data + offsets[i];
        const size_t bytes = (size_t)(offsets[i + 1] - offsets[i]);
        if (bytes > SHORT_BYTES) {
            hash_long(digest, salt, id, bytes, compress);
            continue;
        }
        fill_leaf(leaves.blocks + SHA256_BLOCK * leaves.count, salt, id, bytes);
        leaves.digests[leaves.count++] = digest;
        if (leaves.count == BATCH)
            hash_short(&leaves, compress);
    }
    hash_short(&leaves, compress);
}

/* Writes what is the same in all nodes. */
static void prepare_nodes(node_blocks *blocks)
{
    memset(blocks, 0, sizeof *blocks);
    for (int i = 0; i < BATCH; i++) {
        uint8_t *second = blocks->second + SHA256_BLOCK * i;
        blocks->first[SHA256_BLOCK * i] = 1;
        second[1] = 0x80;
        second[SHA256_BLOCK - 2] = NODE_BITS >> 8;
        second[SHA256_BLOCK - 1] = NODE_BITS & 0xff;
    }
}

/* At most BATCH nodes. */
static void hash_nodes(uint8_t *out, const uint8_t *children, size_t count, node_blocks *blocks,
                       sha256_compressor *compress)
{
    uint32_t states[BATCH][8];
    for (size_t i = 0; i < count; i++) {
        const uint8_t *pair = children + 2 * SHA256_BYTES * i;
        memcpy(blocks->first + SHA256_BLOCK * i + 1, pair, SHA256_BLOCK - 1);
        blocks->second[SHA256_BLOCK * i] = pair[SHA256_BLOCK - 1];
    }
    start(states, count);
    compress(states, blocks->first, count);
    compress(states, blocks->second, count);
    for (size_t i = 0; i < count; i++)
        sha256_write(out + SHA256_BYTES * i, states[i]);
}

void florist_node_hashes(uint8_t *out, const uint8_t *children, size_t count,
                         sha256_compressor *compress)
{
    node_blocks blocks;
    prepare_nodes(&blocks);
    for (size_t i = 0; i < count; i += BATCH)
        hash_nodes(out + SHA256_BYTES * i, children + 2 * SHA256_BYTES * i,
                   count - i < BATCH ? count - i : BATCH, &blocks, compress);
}
