/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ucx_after -- ucx_before.c with pinion: 100 transfers, few registrations. The
 * registration of UCX becomes a registrar, two functions that pinion calls.
 *
 *	cc ucx_after.c $(pkg-config --cflags --libs ucx pinion) && ./a.out
 */
#include "ucx_pair.h"

#include <errno.h>

#include <pinion/pinion.h>

#define LEN    ((size_t)64 << 10)
#define NBUFS  4
#define ROUNDS 25

static char to[LEN];

static int unmap_ranges(void *ucp, struct pinion_registrar_range *const *ranges,
			unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ucp_mem_unmap(ucp, ranges[i]->handle) != UCS_OK)
			ranges[i]->status = -EIO;
	for (unsigned i = 0; i < n; i++)
		if (ranges[i]->status)
			return -EIO;
	return 0;
}

/* All of them or none. */
static int map_ranges(void *ucp, struct pinion_registrar_range *const *ranges,
		      unsigned n)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH
	};

	for (unsigned i = 0; i < n; i++) {
		ucs_status_t status;

		params.address = ranges[i]->addr;
		params.length = ranges[i]->len;
		status = ucp_mem_map(ucp, &params,
				     (ucp_mem_h *)&ranges[i]->handle);
		if (status != UCS_OK) {
			unmap_ranges(ucp, ranges, i);
			return status == UCS_ERR_NO_MEMORY ? -ENOMEM : -EFAULT;
		}
	}
	return 0;
}

static void transfer(struct pinion_context *context, struct pair *pair,
		     void *buf)
{
	struct pinion_pin pin;

	need(!pinion_pin(context, buf, LEN, 0, &pin), "pinion_pin");
	pair_send(pair, buf, LEN, pin.handle, to);
	pinion_unpin(context, &pin);
}

int main(void)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_registrar registrar = { .size = sizeof(registrar),
					      .register_ranges = map_ranges,
					      .deregister_ranges =
						      unmap_ranges };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	struct pinion_context *context;
	struct pair pair;
	char *bufs[NBUFS];

	pair_open(&pair);
	registrar.arg = pair.context;
	need(!pinion_open(&attr, &context), "pinion_open");
	for (int i = 0; i < NBUFS; i++)
		bufs[i] = malloc(LEN);

	for (int i = 0; i < ROUNDS * NBUFS; i++) {
		memset(bufs[i % NBUFS], 'a' + i % 26, LEN);
		transfer(context, &pair, bufs[i % NBUFS]);
		need(!memcmp(to, bufs[i % NBUFS], LEN), "what arrived");
	}
	need(!pinion_cache_query(context, &stats), "pinion_cache_query");
	printf("%d transfers, %llu registrations\n", ROUNDS * NBUFS,
	       (unsigned long long)stats.registrations);
	need(stats.registrations <= 4 * NBUFS, "finding buffers in the cache");

	for (int i = 0; i < NBUFS; i++)
		free(bufs[i]);
	pinion_close(context);
	pair_close(&pair);
	return 0;
}
