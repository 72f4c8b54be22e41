#include "engine.h"

/* As real engines are built; or in a place of its own beside each thread's descriptor. */
#ifndef FAKE_TLS_MODEL
#define FAKE_TLS_MODEL "global-dynamic"
#endif

static __thread struct fake_block block __attribute__((tls_model(FAKE_TLS_MODEL)));

__attribute__((visibility("default"))) struct fake_block *fake_block(void)
{
	return &block;
}
