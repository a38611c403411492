/* SPDX-License-Identifier: BSD-2-Clause */
/* injector_impl -- how injector.c and injector_verbs.c wrap functions. */
#ifndef PN_TESTS_FAULTS_INJECTOR_IMPL_H
#define PN_TESTS_FAULTS_INJECTOR_IMPL_H

#include "injector.h"

/* True, with errno: this call fails. */
bool injector_fails(enum fault_kind kind, int error);

/* A function of `kind` that returns `failed` when it fails, with `error`. */
#define WRAP_ERROR(kind, error, type, failed, name, params, args)        \
	type __real_##name params;                                       \
	type __wrap_##name params;                                       \
	type __wrap_##name params                                        \
	{                                                                \
		return injector_fails(kind, error) ? failed              \
						   : __real_##name args; \
	}

#endif
