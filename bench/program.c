/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/program.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define MS	1e6
#define S	1e9
#define PARCELS 16
#define POINT	sizeof(double)
#define CELLS_D ((size_t)204 * 204)
#define LU_PACK (4.4 * MS) /* 6.66 MB at the 1.5 GB/s of ou2009 */

/* --- building ------------------------------------------------------------- */

/* Without memory a step is lost; the caller checks nsteps at the end. */
static void add(struct pn_program *p, struct pn_program_run_step step)
{
	if (p->nsteps == p->capacity) {
		size_t capacity = p->capacity ? 2 * p->capacity : 64;
		void *steps = reallocarray(p->steps, capacity, sizeof(step));

		if (!steps) {
			p->iterations = 0;
			return;
		}
		p->steps = steps;
		p->capacity = capacity;
	}
	p->steps[p->nsteps++] = step;
}

static void compute(struct pn_program *p, double ns)
{
	add(p, (struct pn_program_run_step){ .action = PN_COMPUTE, .ns = ns });
}

static void wait_all(struct pn_program *p)
{
	add(p, (struct pn_program_run_step){ .action = PN_WAIT_ALL });
}

static unsigned new_buffer(struct pn_program *p, size_t bytes)
{
	p->buffers[p->nbuffers] = bytes;
	return p->nbuffers++;
}

/* Sends a range of one buffer and receives the same range of another. */
struct swap {
	unsigned to, from;    /* ranks */
	unsigned out, in;     /* buffers */
	size_t offset, bytes; /* range in both buffers */
	const char *site;
};

static void post(struct pn_program *p, const struct swap *s)
{
	struct pn_program_run_step step = { .action = PN_POST_RECEIVE,
					    .peer = s->from,
					    .buffer = s->in,
					    .offset = s->offset,
					    .bytes = s->bytes,
					    .site = s->site };

	add(p, step);
	step.action = PN_POST_SEND;
	step.peer = s->to;
	step.buffer = s->out;
	add(p, step);
}

static void exchange(struct pn_program *p, struct swap s)
{
	post(p, &s);
	wait_all(p);
}

/* --- shapes --------------------------------------------------------------- */

static int figure1(struct pn_program *p, const struct pn_program_attr *attr)
{
	size_t bytes = attr->bytes ? attr->bytes : (size_t)5000000;
	unsigned n = p->iterations ? p->iterations : 10;
	unsigned nbuffers = attr->fresh ? 3 * n : 3;

	if (attr->nranks != 2 || nbuffers > PN_PROGRAM_BUFFERS)
		return -EINVAL;
	for (unsigned i = 0; i < nbuffers; i++)
		new_buffer(p, bytes);
	/* With a new buffer per iteration there is no loop. */
	p->iterations = attr->fresh ? 1 : n;
	for (unsigned i = 0; i < nbuffers; i++) {
		static const char *const sites[] = { "1", "2", "3" };

		add(p, (struct pn_program_run_step){
			       .action = attr->rank ? PN_POST_RECEIVE
						    : PN_POST_SEND,
			       .peer = !attr->rank,
			       .buffer = i,
			       .bytes = bytes,
			       .site = sites[i % 3] });
		wait_all(p);
		compute(p, 1 * S);
	}
	return 0;
}

/* The neighbours in a grid of 2 x 2, including the diagonal one. */
enum direction { ALONG_X = 1, ALONG_Y = 2, ACROSS = 3 };

static unsigned neighbour(const struct pn_program_attr *attr,
			  enum direction direction)
{
	return attr->rank ^ direction;
}

static void copy_faces(struct pn_program *p, const struct pn_program_attr *attr,
		       unsigned first)
{
	static const enum direction to[] = { ALONG_X, ALONG_X, ALONG_Y,
					     ALONG_Y, ACROSS,  ACROSS };

	for (unsigned i = 0; i < 6; i++) {
		unsigned peer = neighbour(attr, to[i]);

		post(p, &(struct swap){ peer, peer, first + 2 * i,
					first + 2 * i + 1, 0, p->buffers[first],
					"copy_faces" });
	}
	wait_all(p);
}

struct sweeps {
	double step_ns;
	size_t forward, backward; /* bytes */
	unsigned iterations;
};

static int multipartition(struct pn_program *p,
			  const struct pn_program_attr *attr,
			  const struct sweeps *sweeps)
{
	static const char *const forth[] = { "x forward", "y forward",
					     "z forward" };
	static const char *const back[] = { "x backward", "y backward",
					    "z backward" };
	unsigned faces = p->nbuffers, out, in;

	if (attr->nranks != 4)
		return -EINVAL;
	for (unsigned i = 0; i < 12; i++)
		new_buffer(p, 5 * 2 * 2 * CELLS_D * POINT);
	out = new_buffer(p, sweeps->forward);
	in = new_buffer(p, sweeps->forward);
	if (!p->iterations)
		p->iterations = sweeps->iterations;
	copy_faces(p, attr, faces);
	compute(p, 0.25 * sweeps->step_ns);
	for (unsigned i = 0; i < 3; i++) {
		unsigned peer = neighbour(attr, (enum direction)(i + 1));

		compute(p, 0.08 * sweeps->step_ns);
		exchange(p, (struct swap){ peer, peer, out, in, 0,
					   sweeps->forward, forth[i] });
		compute(p, 0.08 * sweeps->step_ns);
		exchange(p, (struct swap){ peer, peer, out, in, 0,
					   sweeps->backward, back[i] });
		compute(p, 0.07 * sweeps->step_ns);
	}
	compute(p, 0.06 * sweeps->step_ns);
	return 0;
}

static int bt(struct pn_program *p, const struct pn_program_attr *attr)
{
	return multipartition(p, attr,
			      &(struct sweeps){ 1.067 * S, 30 * CELLS_D * POINT,
						5 * CELLS_D * POINT, 250 });
}

static int sp(struct pn_program *p, const struct pn_program_attr *attr)
{
	return multipartition(p, attr,
			      &(struct sweeps){ 0.282 * S, 22 * CELLS_D * POINT,
						10 * CELLS_D * POINT, 500 });
}

/* NPB's exchange_3 on a grid of 2 x 2, where each rank has one neighbour per
 * direction. The first of the two packs and sends before it receives; the
 * second receives and unpacks before it packs and sends. */
static void exchange_3(struct pn_program *p, const struct pn_program_attr *attr,
		       enum direction direction, const char *const sites[2])
{
	struct pn_program_run_step send = { .action = PN_POST_SEND,
					    .peer = neighbour(attr, direction),
					    .buffer = 0,
					    .bytes = p->buffers[0],
					    .site = sites[0] };
	struct pn_program_run_step receive = { .action = PN_POST_RECEIVE,
					       .peer = send.peer,
					       .buffer = 1,
					       .bytes = p->buffers[1],
					       .site = sites[1] };
	bool first = !(attr->rank & direction);

	if (first)
		compute(p, LU_PACK);
	add(p, first ? send : receive);
	wait_all(p);
	if (!first)
		compute(p, 2 * LU_PACK);
	add(p, first ? receive : send);
	wait_all(p);
	if (first)
		compute(p, LU_PACK);
}

static int lu(struct pn_program *p, const struct pn_program_attr *attr)
{
	static const char *const x[] = { "exchange_3 x out",
					 "exchange_3 x in" };
	static const char *const y[] = { "exchange_3 y out",
					 "exchange_3 y in" };

	if (attr->nranks != 4)
		return -EINVAL;
	for (unsigned i = 0; i < 2; i++)
		new_buffer(p, (size_t)5 * 2 * 204 * 408 * POINT);
	if (!p->iterations)
		p->iterations = 300;
	compute(p, 0.61 * S); /* both sweeps */
	exchange_3(p, attr, ALONG_X, x);
	compute(p, 0.03 * S); /* the right-hand side, along x */
	exchange_3(p, attr, ALONG_Y, y);
	compute(p, 0.06 * S); /* along y and z */
	return 0;
}

static void cg_exchanges(struct pn_program *p,
			 const struct pn_program_attr *attr, size_t bytes,
			 const char *const sites[2])
{
	unsigned beside = neighbour(attr, ALONG_X);
	/* Rank 1 of the grid is the transpose of rank 2. */
	unsigned transposed = (attr->rank & 1) << 1 | attr->rank >> 1;

	exchange(p, (struct swap){ beside, beside, 0, 1, 0, bytes, sites[0] });
	compute(p, 2 * MS);
	if (transposed == attr->rank)
		return; /* copies its own slice */
	exchange(p, (struct swap){ transposed, transposed, 0, 1, 0, bytes,
				   sites[1] });
}

static int cg(struct pn_program *p, const struct pn_program_attr *attr)
{
	static const char *const product[] = { "sum", "transpose" };
	static const char *const norm[] = { "norm sum", "norm transpose" };
	size_t bytes = (size_t)750000 * POINT;

	if (attr->nranks != 4)
		return -EINVAL;
	new_buffer(p, bytes);
	new_buffer(p, bytes);
	if (!p->iterations)
		p->iterations = 100;
	for (unsigned i = 0; i < 25; i++) {
		compute(p, 60 * MS);
		cg_exchanges(p, attr, bytes, product);
		compute(p, 5 * MS);
	}
	compute(p, 60 * MS);
	cg_exchanges(p, attr, bytes, norm);
	compute(p, 20 * MS);
	return 0;
}

/* Exchanges all slices but its own at once, among `among` ranks that are
 * `stride` apart and begin at `first`. */
struct transpose {
	unsigned first, among, stride;
	unsigned out, in;
	const char *site;
};

static void transpose(struct pn_program *p, const struct pn_program_attr *attr,
		      const struct transpose *t)
{
	unsigned parcels = t->among < PARCELS ? t->among : PARCELS;
	unsigned me = (attr->rank - t->first) / t->stride;
	size_t slice = p->buffers[t->out] / parcels;

	for (unsigned k = 1; k < parcels; k++) {
		unsigned far = k * (t->among / parcels);
		unsigned to = (me + far) % t->among;
		unsigned from = (me + t->among - far) % t->among;
		struct swap s = { .to = t->first + to * t->stride,
				  .from = t->first + from * t->stride,
				  .out = t->out,
				  .in = t->in,
				  .offset = k * slice,
				  .bytes = slice,
				  .site = t->site };

		post(p, &s);
	}
	wait_all(p);
}

static void ft_arrays(struct pn_program *p, const struct pn_program_attr *attr,
		      unsigned n, size_t bytes)
{
	if (attr->bytes)
		bytes = attr->bytes;
	for (unsigned i = 0; i < n; i++)
		new_buffer(p, bytes / attr->nranks);
	if (!p->iterations)
		p->iterations = 20;
}

static int ft(struct pn_program *p, const struct pn_program_attr *attr)
{
	struct transpose all = { 0, attr->nranks, 1, 1, 0, "forward" };

	if (attr->nranks < 2 || attr->nranks & (attr->nranks - 1))
		return -EINVAL;
	ft_arrays(p, attr, 3, (size_t)512 << 20);
	compute(p, 2 * S);
	transpose(p, attr, &all);
	compute(p, 2 * S);
	p->nsetup = p->nsteps;
	compute(p, 2 * S);
	all = (struct transpose){ 0, attr->nranks, 1, 1, 2, "inverse" };
	transpose(p, attr, &all);
	compute(p, 1.7 * S);
	return 0;
}

static int ft2d(struct pn_program *p, const struct pn_program_attr *attr)
{
	unsigned row = attr->rank / 8 * 8, column = attr->rank % 8;
	struct transpose rows = { row, 8, 1, 1, 0, "forward" };
	struct transpose columns = { column, 2, 8, 2, 3, "inverse columns" };

	if (attr->nranks != 16)
		return -EINVAL;
	ft_arrays(p, attr, 4, (size_t)2 << 30);
	compute(p, 2 * S);
	transpose(p, attr, &rows);
	compute(p, 2 * S);
	p->nsetup = p->nsteps;
	compute(p, 2 * S);
	rows = (struct transpose){ row, 8, 1, 1, 2, "inverse rows" };
	transpose(p, attr, &rows);
	compute(p, 1.5 * S);
	transpose(p, attr, &columns);
	compute(p, 1.5 * S);
	return 0;
}

static int solver(struct pn_program *p, const struct pn_program_attr *attr)
{
	static const char *const sites[] = { "exchange x", "exchange y" };
	static const double phases[] = { 30 * MS, 200 * MS };
	static const char *const reduce[] = { "reduce after x",
					      "reduce after y" };
	unsigned peer = neighbour(attr, ALONG_X);
	size_t bytes = 4000000;

	if (attr->nranks != 4)
		return -EINVAL;
	for (unsigned i = 0; i < 6; i++)
		new_buffer(p, bytes);
	if (!p->iterations)
		p->iterations = 300;
	for (unsigned i = 0; i < 2; i++) {
		exchange(p, (struct swap){ peer, peer, 2 * i, 2 * i + 1, 0,
					   bytes, sites[i] });
		exchange(p, (struct swap){ peer, peer, 4, 5, 0, bytes,
					   reduce[i] });
		compute(p, phases[i]);
	}
	return 0;
}

static const struct {
	const char *name;
	int (*make)(struct pn_program *p, const struct pn_program_attr *attr);
} shapes[] = { { "figure1", figure1 }, { "bt", bt },	    { "lu", lu },
	       { "sp", sp },	       { "cg", cg },	    { "ft", ft },
	       { "ft2d", ft2d },       { "solver", solver } };

static void scale(struct pn_program *p, double factor)
{
	for (size_t i = 0; factor > 0 && i < p->nsteps; i++)
		p->steps[i].ns *= factor;
}

int pn_program_make(const struct pn_program_attr *attr, struct pn_program *out)
{
	struct pn_program p = { .iterations = attr->iterations };
	int ret = -EINVAL;

	for (size_t i = 0; i < PN_ARRAY_LEN(shapes); i++)
		if (!strcmp(shapes[i].name, attr->shape))
			ret = shapes[i].make(&p, attr);
	if (!ret && !p.iterations)
		ret = -ENOMEM;
	if (ret) {
		pn_program_free(&p);
		return ret;
	}
	scale(&p, attr->scale);
	*out = p;
	return 0;
}

void pn_program_free(struct pn_program *program)
{
	free(program->steps);
}

const struct pn_program_run_step *pn_program_step(
	const struct pn_program *program, size_t n)
{
	size_t loop = program->nsteps - program->nsetup;

	if (n < program->nsetup)
		return &program->steps[n];
	if (n - program->nsetup >= loop * program->iterations)
		return NULL;
	return &program->steps[program->nsetup + (n - program->nsetup) % loop];
}

/* xorshift64*, then Box and Muller's transform. */
static double uniform(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return ((double)(*state * UINT64_C(2685821657736338717) >> 11) + 1) *
	       0x1p-53;
}

double pn_program_noise(uint64_t *state, double jitter)
{
	double u = uniform(state), v = uniform(state);
	double g = sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * v);

	return 1 + jitter * (g > 3 ? 3 : g < -3 ? -3 : g);
}
