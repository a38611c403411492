/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * program -- the actions of a rank of a parallel program: compute, post sends
 * and receives, wait for them. The shapes follow Li and others 2011: its
 * microbenchmark (figure 1) and the NAS benchmarks that it ran, each with these
 * buffers, sizes and phases:
 *
 *   figure1  two ranks; rank 0 sends buffers 1, 2, 3 with a second of
 *            computation after each, 10 times. 5 MB each (the paper's figure
 *            2). `fresh`: every message has its own buffer.
 *   bt, sp   (class D, 408^3, four ranks, 2 x 2, two cells each) a time step:
 *            copy_faces exchanges 6 faces at once, 2 layers of 5 doubles on 204
 *            x 204 points and 2 cells: 6.66 MB out and as much in per face; a
 *            quarter of the step computes the right-hand side; then x, y and
 *            z_solve, each with a forward and a backward message between its
 *            parts, from one buffer out and one in that all three share. BT: 30
 *            and 5 doubles per point, SP: 22 and 10. 1.07 s and 0.28 s per step
 *            (266.87 s and 141.10 s divided by the steps of class D).
 *   lu       (D, 2 x 2) a step: the lower and the upper triangular sweep, whose
 *            messages are below any threshold; then the right-hand side, which
 *            calls exchange_3 for one direction, computes, calls it for the
 *            other, computes. As in NPB, one buffer out and one in serve both,
 *            2 layers of 5 doubles on 204 x 408 points, 6.66 MB; and of two
 *            neighbours one sends before it receives, the other receives before
 *            it sends, with packing and unpacking between (4.4 ms each). 0.73 s
 *            per step.
 *   cg       (D, 2 x 2) 25 inner iterations of 81 ms: after the product, w is
 *            summed with the neighbour's, then exchanged with the transposed
 *            rank, 6 MB each, both from w into q; after the 25 iterations the
 *            same once more for the norm.
 *   ft       (B, one dimension) the forward transform once, from u1 into u0;
 *            then iterations of 3.97 s: evolve, transform, transpose u1 into
 *            u2, transform. A rank's array is 128 MiB (bytes of all ranks /
 *            ranks); a transpose sends all slices but its own at once. With
 *            more than 16 ranks slices travel in 16 parcels.
 *   ft2d     (C, 2 x 8) as ft, but each iteration transposes twice, u1 into u2
 *            among the 8 ranks of a row, u2 into u3 between the 2 of a column.
 *   solver   (four ranks; not of the paper) a step of a solver that reduces
 *            the same vector after each of two phases: x is exchanged, w
 *            reduced, 30 ms computed; y exchanged, w reduced, 200 ms
 *            computed. 4 MB each. To a library that hides where it is
 *            called, both reductions look the same.
 *
 * Noise: a computation takes (1 + jitter * g) times its time, g normally
 * distributed and cut at 3; equal seeds give equal noise.
 * Threads: one at a time.
 */
#ifndef PN_BENCH_PROGRAM_H
#define PN_BENCH_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pn_action { PN_COMPUTE, PN_POST_SEND, PN_POST_RECEIVE, PN_WAIT_ALL };

struct pn_program_run_step {
	enum pn_action action;
	double ns;	 /* COMPUTE */
	unsigned peer;	 /* rank */
	unsigned buffer; /* number */
	size_t offset, bytes;
	const char *site;
};

struct pn_program_attr {
	const char *shape;
	unsigned rank, nranks;
	/* size of all ranks' arrays (ft) or of a message (figure1); 0: as above
	 */
	size_t bytes;
	unsigned iterations; /* 0: default of the shape */
	double scale;	     /* factor of computing times; 0: 1 */
	bool fresh;	     /* figure1 */
};

#define PN_PROGRAM_BUFFERS 64

struct pn_program {
	struct pn_program_run_step *steps;
	size_t nsteps, capacity;
	size_t nsetup; /* number of steps before the loop */
	unsigned iterations;
	size_t buffers[PN_PROGRAM_BUFFERS]; /* size of each buffer */
	unsigned nbuffers;
};

/* -EINVAL: no such shape, or not for so many ranks; -ENOMEM. */
int pn_program_make(const struct pn_program_attr *attr, struct pn_program *out);
void pn_program_free(struct pn_program *program);

/* The n-th step of the whole run; NULL behind the last one. */
const struct pn_program_run_step *pn_program_step(
	const struct pn_program *program, size_t n);

/* Random factor of the next computation. */
double pn_program_noise(uint64_t *state, double jitter);

#endif
