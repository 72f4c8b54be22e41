/*
 * SHA-256 (FIPS 180-4).  Inside a server there is libc only, and identities must be the same there and
 * in the tools.
 */
#ifndef FBPROF_SHA256_H
#define FBPROF_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BLOCK	64
#define SHA256_HEX_SIZE 65 /* with NUL */

struct sha256 {
	uint32_t state[8];
	uint64_t size; /* bytes so far */
	unsigned char block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *data, size_t size);

/* Ends it: nothing can be added any more. */
void sha256_hex(struct sha256 *sha, char hex[SHA256_HEX_SIZE]);

#endif
