/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "bench/rhythm.h"
#include "config/option.h"
#include "context.h"

#define BUFFERS	  16
#define BYTES	  ((size_t)1 << 20)
#define PERIOD_NS ((uint64_t)160 * PN_NS_PER_MS)

static const struct pn_pages_policy present = { .numa_node = -1,
						.populate = true };

/* The program: it sends to itself. */
struct program {
	struct pn_report *report;
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *self;
	struct pinion_heap *heap;
	char *buffers, *inbox; /* the inbox is in registered memory */
};

static int open_endpoint(struct program *p)
{
	struct pinion_address address;
	int ret = pinion_endpoint_open(p->context, NULL, &p->ep);

	if (!ret)
		ret = pinion_endpoint_address(p->ep, &address);
	return ret ? ret : pinion_peer_add(p->ep, &address, &p->self);
}

static int open_memory(struct program *p)
{
	void *buffers;
	int ret = pn_pages_map(BUFFERS * BYTES, &present, &buffers);

	if (ret)
		return ret;
	p->buffers = buffers;
	ret = pinion_heap_open(p->context, NULL, &p->heap);
	if (!ret)
		p->inbox = pinion_heap_malloc(p->heap, BYTES);
	return ret || p->inbox ? ret : -errno;
}

/* Every message is sent from its buffer, which stays registered. */
static int program_open(void *arg, const char *const *options, size_t n,
			struct pinion_context **out)
{
	struct program *p = arg;
	char device[PN_OPTION_TEXT_BYTES + 8];
	const char *given[8] = { device, "protocol=cached", "cache_merge=no" };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = given };
	int ret;

	snprintf(device, sizeof(device), "device=%s", p->report->device);
	for (size_t i = 0; i < n; i++)
		given[3 + i] = options[i];
	ret = pinion_open(&attr, &p->context);
	if (!ret)
		ret = open_endpoint(p);
	if (!ret)
		ret = open_memory(p);
	if (ret)
		return ret;
	if (!p->report->profile) {
		pn_report_device(p->report, p->context->device);
		pn_report_head(p->report, "the helper on a device");
	}
	*out = p->context;
	return 0;
}

static void program_close(void *arg)
{
	struct program *p = arg;

	if (p->inbox)
		pinion_heap_free(p->heap, p->inbox);
	if (p->heap)
		pinion_heap_close(p->heap);
	pinion_close(p->context);
	if (p->buffers)
		pn_pages_unmap(p->buffers, BUFFERS * BYTES, &present);
	*p = (struct program){ .report = p->report };
}

static int send_to_self(void *arg, unsigned buffer)
{
	struct program *p = arg;
	struct pinion_message in = { .size = sizeof(in),
				     .buf = p->inbox,
				     .len = BYTES,
				     .peer = p->self },
			      out = in;
	struct pinion_request *requests[2];
	int ret;

	out.buf = p->buffers + buffer * BYTES;
	ret = pinion_recv(p->ep, &in, &requests[0]);
	if (!ret)
		ret = pinion_send(p->ep, &out, &requests[1]);
	for (unsigned i = 0; !ret && i < 2; i++)
		ret = pinion_wait(p->ep, requests[i], PINION_FOREVER, NULL);
	return ret;
}

int pn_rhythm_run_messages(unsigned periods, struct pn_report *report)
{
	struct program program = { .report = report };
	const struct pn_rhythm rhythm = { .buffers = BUFFERS,
					  .periods = periods,
					  .period_ns = PERIOD_NS,
					  .open = program_open,
					  .use = send_to_self,
					  .close = program_close,
					  .arg = &program,
					  .experiment = "rhythm",
					  .key = "use",
					  .value = "message" };

	return pn_rhythm_run(&rhythm, report);
}
