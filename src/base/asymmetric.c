/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/asymmetric.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

bool pn_asymmetric_init(void)
{
	return PN_ASYMMETRIC_FENCES ||
	       !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

void pn_asymmetric_heavy(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	/* Fails only where pn_asymmetric_init() returned false; nobody relies
	 * on it there. */
	if (!PN_ASYMMETRIC_FENCES)
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}
