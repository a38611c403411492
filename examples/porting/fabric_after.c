/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_after -- fabric_before.c with pinion: 100 transfers, and few
 * registrations.
 *
 *	cc fabric_after.c -lfabric $(pkg-config --cflags --libs pinion) &&
 *		./a.out
 */
#include "fabric_pair.h"

#include <pinion/fabric.h>
#include <pinion/pinion.h>

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static void transfer(struct pinion_context *context, struct pair *pair,
		     void *buf, const struct fi_rma_iov *iov)
{
	struct pinion_pin pin;

	need(!pinion_pin(context, buf, LEN, 0, &pin), "pinion_pin");
	pair_write(pair, buf, pinion_fabric_desc(&pin), iov);
	pinion_unpin(context, &pin);
}

int main(void)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_fabric_attr fabric = { .size = sizeof(fabric) };
	struct pinion_context *context;
	struct fi_rma_iov iov = { .len = LEN };
	struct pinion_pin target;
	struct pair pair;
	char *bufs[NBUFS];

	pair_open(&pair);
	fabric.domain = pair.domain;
	fabric.info = pair.info;
	need(!pinion_fabric_open(&fabric, NULL, &context),
	     "pinion_fabric_open");
	need(!pinion_pin(context, to, LEN, PINION_ACCESS_REMOTE_WRITE, &target),
	     "pinion_pin");
	iov.addr = pinion_fabric_addr(&target);
	iov.key = target.remote_key;
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(context, &pair, bufs[i % NBUFS], &iov);
		need(!memcmp(to, bufs[i % NBUFS], LEN), "what arrived");
	}
	need(!pinion_cache_query(context, &stats), "pinion_cache_query");
	printf("%d transfers, %llu registrations\n", ROUNDS * NBUFS,
	       (unsigned long long)stats.registrations);
	need(stats.registrations <= 4 * NBUFS, "finding buffers in the cache");

	for (int i = 0; i < NBUFS; i++)
		free(bufs[i]);
	pinion_unpin(context, &target);
	pinion_close(context);
	pair_close(&pair);
	return 0;
}
