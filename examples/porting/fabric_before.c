/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_before -- a libfabric program that registers each buffer for its
 * transfer. fabric_after.c is the same program with pinion.
 *
 *	cc fabric_before.c -lfabric && ./a.out
 */
#include "fabric_pair.h"

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static void transfer(struct pair *pair, void *buf, const struct fi_rma_iov *iov)
{
	struct fid_mr *mr;

	need(!fi_mr_reg(pair->domain, buf, LEN, FI_WRITE, 0, 1, 0, &mr, NULL),
	     "fi_mr_reg");
	pair_write(pair, buf, fi_mr_desc(mr), iov);
	fi_close(&mr->fid);
}

int main(void)
{
	struct pair pair;
	struct fid_mr *target;
	struct fi_rma_iov iov = { .len = LEN };
	char *bufs[NBUFS];

	pair_open(&pair);
	need(!fi_mr_reg(pair.domain, to, LEN, FI_REMOTE_WRITE, 0, 2, 0, &target,
			NULL),
	     "fi_mr_reg");
	if (pair.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		iov.addr = (uintptr_t)to;
	iov.key = fi_mr_key(target);
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(&pair, bufs[i % NBUFS], &iov);
		need(!memcmp(to, bufs[i % NBUFS], LEN), "what arrived");
	}
	printf("%d transfers\n", ROUNDS * NBUFS);

	for (int i = 0; i < NBUFS; i++)
		free(bufs[i]);
	fi_close(&target->fid);
	pair_close(&pair);
	return 0;
}
