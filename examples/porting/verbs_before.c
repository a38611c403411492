/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_before -- a verbs program that registers each buffer for its transfer.
 * verbs_after.c is the same program with pinion.
 *
 *	cc verbs_before.c -libverbs && ./a.out
 */
#include "verbs_pair.h"

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static void transfer(struct pair *pair, void *buf, uint32_t rkey)
{
	struct ibv_mr *mr =
		ibv_reg_mr(pair->pd, buf, LEN, IBV_ACCESS_LOCAL_WRITE);

	need(mr != NULL, "ibv_reg_mr");
	pair_write(pair, (struct ibv_sge){ (uintptr_t)buf, LEN, mr->lkey }, to,
		   rkey);
	ibv_dereg_mr(mr);
}

int main(void)
{
	struct pair pair;
	struct ibv_mr *target;
	char *bufs[NBUFS];

	pair_open(&pair, NULL);
	target = ibv_reg_mr(pair.pd, to, LEN,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	need(target != NULL, "ibv_reg_mr");
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(&pair, bufs[i % NBUFS], target->rkey);
		need(!memcmp(to, bufs[i % NBUFS], LEN), "what arrived");
	}
	printf("%d transfers\n", ROUNDS * NBUFS);

	for (int i = 0; i < NBUFS; i++)
		free(bufs[i]);
	ibv_dereg_mr(target);
	pair_close(&pair);
	return 0;
}
