/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ucx_before -- a UCX program that registers each buffer for its transfer.
 * ucx_after.c is the same program with pinion.
 *
 *	cc ucx_before.c $(pkg-config --cflags --libs ucx) && ./a.out
 */
#include "ucx_pair.h"

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static void transfer(struct pair *pair, void *buf)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = buf,
		.length = LEN
	};
	ucp_mem_h memh;

	need(ucp_mem_map(pair->context, &params, &memh) == UCS_OK,
	     "ucp_mem_map");
	pair_send(pair, buf, LEN, memh, to);
	ucp_mem_unmap(pair->context, memh);
}

int main(void)
{
	struct pair pair;
	char *bufs[NBUFS];

	pair_open(&pair);
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(&pair, bufs[i % NBUFS]);
		need(!memcmp(to, bufs[i % NBUFS], LEN), "what arrived");
	}
	printf("%d transfers\n", ROUNDS * NBUFS);

	for (int i = 0; i < NBUFS; i++)
		free(bufs[i]);
	pair_close(&pair);
	return 0;
}
