/*
 * CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as iSCSI (RFC 3720) defines it.
 * Any thread; no state.  crc32c(0, "123456789", 9) is 0xe3069283.
 */
#ifndef FBPROF_CRC32C_H
#define FBPROF_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `size` bytes at `data`. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

#endif
