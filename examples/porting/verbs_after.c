/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_after -- verbs_before.c with pinion: 100 transfers, few registrations.
 *
 *	cc verbs_after.c -libverbs $(pkg-config --cflags --libs pinion) &&
 *		./a.out
 */
#include "verbs_pair.h"

#include <pinion/pinion.h>
#include <pinion/verbs.h>

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static void transfer(struct pinion_context *context, struct pair *pair,
		     void *buf, uint32_t rkey)
{
	struct pinion_pin pin;

	need(!pinion_pin(context, buf, LEN, PINION_ACCESS_LOCAL_WRITE, &pin),
	     "pinion_pin");
	pair_write(pair,
		   (struct ibv_sge){ (uintptr_t)buf, LEN,
				     pinion_verbs_lkey(&pin) },
		   to, rkey);
	pinion_unpin(context, &pin);
}

int main(void)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_context *context;
	struct pinion_pin target;
	struct pair pair;
	char *bufs[NBUFS];

	pair_open(&pair, NULL);
	need(!pinion_verbs_open(pair.pd, NULL, &context), "pinion_verbs_open");
	need(!pinion_pin(context, to, LEN, PINION_ACCESS_REMOTE_WRITE, &target),
	     "pinion_pin");
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(context, &pair, bufs[i % NBUFS],
			 pinion_verbs_rkey(&target));
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
