/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/generate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/range.h"

#define SPACING                                                      \
	((uint64_t)1 << 20) /* distance of objects: the largest size \
			     */
#define BASE ((uint64_t)1 << 32)

/* 0: the default of the kind. */
struct shape {
	uint64_t requests, objects, pages, skew, seed, phases;
};

#define FIELD(name) offsetof(struct shape, name)

static const struct pn_option options[] = {
	{ "requests", PN_OPTION_NUMBER, "0", "how many", FIELD(requests), 0,
	  UINT64_C(1) << 40, NULL },
	{ "objects", PN_OPTION_NUMBER, "0", "number of buffers", FIELD(objects),
	  0, 1 << 24, NULL },
	{ "pages", PN_OPTION_NUMBER, "0",
	  "pages of the largest buffer, a power of two; all smaller powers are "
	  "equally likely",
	  FIELD(pages), 0, 256, NULL },
	{ "skew", PN_OPTION_NUMBER, "0",
	  "popularity falls as 1/rank to the power of this many hundredths",
	  FIELD(skew), 0, 300, NULL },
	{ "phases", PN_OPTION_NUMBER, "0", "number of phases", FIELD(phases), 0,
	  1 << 20, NULL },
	{ "seed", PN_OPTION_NUMBER, "1", "seed of the random numbers",
	  FIELD(seed), 0, 0, NULL },
};

#define CLIENT_SLOTS ((30u << 20) / (2 * PN_PAGE_BYTES))

struct generator {
	struct shape shape;
	/* cello92: position of the disk's head */
	uint64_t at;
	/* cello92: contents of the client cache */
	uint64_t client[CLIENT_SLOTS];
	struct pn_workload *workload;
	uint64_t random;
	double *chance;	     /* cumulative probability, by object */
	uint8_t *log2_pages; /* by object */
};

/* --- chance ------------------------------------------------------------------
 */

/* xorshift64*. */
static uint64_t next_random(struct generator *g)
{
	g->random ^= g->random >> 12;
	g->random ^= g->random << 25;
	g->random ^= g->random >> 27;
	return g->random * UINT64_C(2685821657736338717);
}

static uint64_t random_below(struct generator *g, uint64_t bound)
{
	return (next_random(g) >> 11) % bound;
}

static double random_unit(struct generator *g)
{
	return (double)(next_random(g) >> 11) * 0x1p-53;
}

/* Draws an object by popularity. */
static uint64_t draw_object(struct generator *g)
{
	uint64_t low = 0, high = g->shape.objects - 1;
	double x = random_unit(g) * g->chance[high];

	while (low < high) {
		uint64_t middle = (low + high) / 2;

		if (g->chance[middle] < x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int make_objects(struct generator *g)
{
	uint64_t n = g->shape.objects;
	unsigned nsizes = 64 - (unsigned)__builtin_clzll(g->shape.pages);
	double sum = 0;

	g->chance = calloc(n, sizeof(*g->chance));
	g->log2_pages = calloc(n, 1);
	if (!g->chance || !g->log2_pages)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		sum += pow((double)(i + 1), -(double)g->shape.skew / 100);
		g->chance[i] = sum;
		g->log2_pages[i] = (uint8_t)random_below(g, nsizes);
	}
	return 0;
}

/* --- requests ----------------------------------------------------------------
 */

static int request(struct generator *g, uint64_t addr, uint64_t npages)
{
	struct pn_workload_step step = { .addr = addr,
					 .len = npages * PN_PAGE_BYTES,
					 .kind = PN_WORKLOAD_PIN };

	return pn_workload_add(g->workload, &step);
}

/* Requests an object of the size of `object` at the address number `place`. */
static int request_at(struct generator *g, uint64_t slot, uint64_t object)
{
	return request(g, BASE + slot * SPACING,
		       UINT64_C(1) << g->log2_pages[object]);
}

static int zipf(struct generator *g, uint64_t number)
{
	uint64_t object = draw_object(g);

	(void)number;
	return request_at(g, object, object);
}

static int loop(struct generator *g, uint64_t number)
{
	uint64_t object = number % g->shape.objects;

	return request_at(g, object, object);
}

static int scan(struct generator *g, uint64_t number)
{
	uint64_t slot = g->shape.objects + number;

	if (number % 3)
		return zipf(g, number);
	return request_at(g, slot, number % g->shape.objects);
}

static int phases(struct generator *g, uint64_t number)
{
	uint64_t each = g->shape.requests / g->shape.phases + 1;
	uint64_t object = draw_object(g);

	return request_at(g, number / each * g->shape.objects + object, object);
}

#define EXTENT	  (2 * PN_PAGE_BYTES) /* unit of the disk */
#define RUN	  8		      /* average number of extents in a run */
#define MAX_TRIES 10000

/* The requests that miss the client cache, extent by extent. On a disk that is
 * hardly larger than the client cache, the client cache has a quarter of the
 * disk. */
static int cello92(struct generator *g, uint64_t number)
{
	uint64_t n = g->shape.objects;
	uint64_t nslots = n / 4 < CLIENT_SLOTS ? n / 4 + 1 : CLIENT_SLOTS;
	uint64_t npages = random_below(g, 5) ? 2 : 1;

	(void)number;
	for (unsigned tries = 0; tries < MAX_TRIES; tries++) {
		/* Popular extents are scattered over the disk. */
		g->at = random_below(g, RUN) ? (g->at + 1) % n
					     : draw_object(g) * 7919 % n;
		if (g->client[g->at % nslots] != g->at + 1)
			break;
	}
	g->client[g->at % nslots] = g->at + 1;
	return request(g, BASE + g->at * EXTENT, npages);
}

struct kind {
	const char *name, *help;
	struct shape shape;
	int (*next)(struct generator *g, uint64_t number);
};

static const struct kind kinds[] = {
	{ "cello92",
	  "disk requests of a timesharing system, as in the paper",
	  { .requests = 500000,
	    .objects = UINT64_C(10400000000) / EXTENT,
	    .pages = 2,
	    .skew = 90 },
	  cello92 },
	{ "httpd",
	  "files of a web server, as in the paper",
	  { .requests = 1100000, .objects = 12184, .pages = 32, .skew = 80 },
	  zipf },
	{ "zipf",
	  "some buffers are more popular than others",
	  { .requests = 1000000, .objects = 10000, .pages = 32, .skew = 100 },
	  zipf },
	{ "loop",
	  "the same buffers in a loop",
	  { .requests = 1000000, .objects = 1000, .pages = 32, .skew = 1 },
	  loop },
	{ "scan",
	  "one request in three is for a buffer that is never used again",
	  { .requests = 1000000, .objects = 10000, .pages = 32, .skew = 100 },
	  scan },
	{ "phases",
	  "other buffers in each phase",
	  { .requests = 1000000,
	    .objects = 10000,
	    .pages = 32,
	    .skew = 100,
	    .phases = 10 },
	  phases },
};

const char *pn_generate_kind(unsigned index, const char **help)
{
	if (index >= PN_ARRAY_LEN(kinds))
		return NULL;
	*help = kinds[index].help;
	return kinds[index].name;
}

/* --- specs -------------------------------------------------------------------
 */

static const struct kind *find(const char *spec, size_t len)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++)
		if (strlen(kinds[i].name) == len &&
		    !memcmp(kinds[i].name, spec, len))
			return &kinds[i];
	return NULL;
}

static void or_default(uint64_t *value, uint64_t def)
{
	*value = *value ? *value : def;
}

static int parse(const char *spec, const struct kind **kind,
		 struct shape *shape, struct pn_why *why)
{
	size_t len = strcspn(spec, ",");
	int ret;

	*kind = find(spec, len);
	if (!*kind) {
		snprintf(why->text, sizeof(why->text),
			 "no workload is called '%.*s'; there are cello92, "
			 "httpd, zipf, loop, scan and phases",
			 (int)(len < 64 ? len : 64), spec);
		return -EINVAL;
	}
	pn_options_defaults(options, PN_ARRAY_LEN(options), shape);
	ret = pn_options_parse_list(options, PN_ARRAY_LEN(options),
				    spec[len] ? spec + len + 1 : "", shape,
				    why);
	if (ret)
		return ret;
	or_default(&shape->requests, (*kind)->shape.requests);
	or_default(&shape->objects, (*kind)->shape.objects);
	or_default(&shape->pages, (*kind)->shape.pages);
	or_default(&shape->skew, (*kind)->shape.skew);
	or_default(&shape->phases, (*kind)->shape.phases);
	or_default(&shape->phases, 1);
	return 0;
}

int pn_generate(const char *spec, struct pn_workload *workload,
		struct pn_why *why)
{
	struct generator *g = calloc(1, sizeof(*g));
	const struct kind *kind;
	int ret;

	if (!g)
		return -ENOMEM;
	g->workload = workload;
	ret = parse(spec, &kind, &g->shape, why);
	if (ret)
		goto free_generator;
	g->random = g->shape.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	ret = make_objects(g);
	for (uint64_t i = 0; i < g->shape.requests && !ret; i++)
		ret = kind->next(g, i);
	if (ret)
		snprintf(why->text, sizeof(why->text), "%s",
			 ret == -ERANGE ? "the addresses of its objects reach "
					  "beyond 2^47"
					: strerror(-ret));
	free(g->chance);
	free(g->log2_pages);
free_generator:
	free(g);
	return ret;
}
