/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the helper is told of messages, on `sim`: of each end when the buffer is
 * not in use any more, so that it can be deregistered. The linker wraps the
 * call that tells it.
 */
#include "test.h"

#include <errno.h>

#include "message/party.h"

#define BYTES ((size_t)300 << 10)

static struct pn_cache *cache; /* of the rank that receives */
static unsigned ntraced_peers, nbusy;

/* The linker's names: what is called, and what would have been. */
void __real_pn_helper_record_done(struct pn_helper *helper,
				  const struct pn_call *call);
void __wrap_pn_helper_record_done(struct pn_helper *helper,
				  const struct pn_call *call);

void __wrap_pn_helper_record_done(struct pn_helper *helper,
				  const struct pn_call *call)
{
	struct pn_dropped dropped;

	ntraced_peers++;
	nbusy += pn_cache_drop(cache, call->range.addr, call->range.len,
			       &dropped) == -EBUSY;
	__real_pn_helper_record_done(helper, call);
}

static void exchange(struct rank *rank)
{
	struct party_attr attr = { .protocol = *(int *)rank->arg,
				   .helped = rank->rank };
	uint8_t *buf = aligned_alloc(4096, BYTES);
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank)
		cache = party.cache;
	for (unsigned i = 0; i < 3; i++)
		RANK_CHECK(rank,
			   !(rank->rank
				     ? party_recv(&party, 0, buf, BYTES, 1)
				     : party_send(&party, 1, buf, BYTES, 1)));
	party_barrier(&party);
	party_close(&party);
	free(buf);
}

static void a_buffer_is_free_when_the_helper_hears_of_its_end(void **state)
{
	(void)state;
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
		struct ranks run = { .how = "sim",
				     .spec = "sim:cost=cx5",
				     .nranks = 2,
				     .fn = exchange,
				     .arg = &p };

		ntraced_peers = nbusy = 0;
		assert_true(ranks_run(&run));
		assert_int_equal(ntraced_peers, 3);
		assert_int_equal(nbusy, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_buffer_is_free_when_the_helper_hears_of_its_end),
	};

	return RUN_TESTS(tests);
}
