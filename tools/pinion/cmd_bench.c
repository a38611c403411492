/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion bench: the table of benchmarks. Without a name it lists them. */
#include "bench/bench.h"
#include "tools/pinion/command.h"

static const struct pn_command *const benchmarks[] = {
	&pn_bench_register, &pn_bench_raw,     &pn_bench_cache,
	&pn_bench_heap,	    &pn_bench_message, &pn_bench_put,
	&pn_bench_frrwp,    &pn_bench_rails,   &pn_bench_reuse,
	&pn_bench_ops,	    &pn_bench_peers,   &pn_bench_fabric,
	&pn_bench_mpi,	    &pn_bench_helper,  &pn_bench_progress,
	&pn_bench_view,	    &pn_bench_slab,    &pn_bench_slots,
	&pn_bench_gpu,	    &pn_bench_cuda,    NULL,
};

static int run(const void *values, char *const *operands)
{
	(void)values, (void)operands;
	for (size_t i = 0; benchmarks[i]; i++)
		printf("%-10s %s\n", benchmarks[i]->name, benchmarks[i]->help);
	return PN_EXIT_OK;
}

const struct pn_command pn_cmd_bench = {
	.name = "bench",
	.help = "run a benchmark; without a name, list them",
	.subs = benchmarks,
	.run = run,
};
