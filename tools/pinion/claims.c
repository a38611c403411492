/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/claims.h"

#include "base/compiler.h"

#define HELPER_NAS(shape_)                                                 \
	.profile = "ou2009", .bench = "helper",                            \
	.key = "registered_bytes_peak", .how = PN_CLAIM_LESS,              \
	.common = { "experiment=nas", "shape=" shape_ }, .over = "jitter", \
	.own = "predictor=learned", .base = "scheme=leave_pinned",         \
	.model = pn_model_same, .idea = PN_IDEA_HELPER,                    \
	.command = "pinion bench helper --experiment nas"
#define AGGREGATION(test_)                                                \
	.profile = "ou2009", .how = PN_CLAIM_LESS, .bench = "helper",     \
	.key = "registered_bytes_peak",                                   \
	.common = { "experiment=aggregation", "shape=ft2d test " test_ }, \
	.own = "scheme=helper", .base = "scheme=leave_pinned",            \
	.model = pn_model_same, .idea = PN_IDEA_HELPER,                   \
	.command = "pinion bench helper --experiment aggregation"
#define PREDICTOR(name_, window_)                                             \
	.profile = "ou2009", .bench = "helper",                               \
	.common = { "experiment=predictor", "shape=all", "window=" window_ }, \
	.over = "jitter", .own = "predictor=" name_, .model = pn_model_same,  \
	.command = "pinion bench helper --experiment predictor"
/* The paper names the largest gain over sizes. */
#define HEAP(profile_, what_)                                     \
	.profile = (profile_), .bench = "heap", .key = "speedup", \
	.idea = PN_IDEA_HEAP, .over = "bytes", .extreme = true,   \
	.common = { "what=" what_ },                              \
	.command = "pinion bench heap --device soft:cost=" profile_
#define FRRWP(pages_)                                  \
	.profile = "ou2009", .bench = "frrwp",         \
	.common = { "protocol=posted-ahead", pages_ }, \
	.command = "pinion bench frrwp"
#define SIM_PAPER(trace_)                                                  \
	.profile = "ou2009", .bench = "sim paper", .over = "budget_bytes", \
	.idea = PN_IDEA_CACHE, .common = { "trace=gen:" trace_ },          \
	.command = "pinion sim paper"
#define MESSAGES(own_, base_, also_)                                        \
	.profile = "woodall2006", .bench = "message", .key = "bytes_per_s", \
	.on_gpu = true, .common = { "bytes=8M", also_ }, .own = (own_),     \
	.base = (base_),                                                    \
	.command = "pinion bench message --device sim:cost=woodall2006 "    \
		   "--bytes 8M --buffers 1 --protocol cached,pipeline "     \
		   "--reuse 1..80"
#define REUSE(what_)                                                      \
	.profile = "rashti2011", .bench = "reuse", .key = "gain_percent", \
	.idea = PN_IDEA_DIRECT, .over = "layout",                         \
	.common = { "what=" what_, "bytes=8K" },                          \
	.command = "pinion bench reuse --device sim:cost=rashti2011"

const struct pn_claim pn_claims[] = {
	/* --- Helper --- */
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 11",
	  .what = "peak of registered memory saved, BT",
	  .unit = "%",
	  .number = 16.13,
	  .low = 10,
	  .high = 25,
	  .good = 1,
	  HELPER_NAS("bt"),
	  .why = "The shapes have the buffers of NPB, sizes and times of class "
		 "D; mean over three noise levels (noise of 0.1 % alone until "
		 "LU had been seen), since nobody knows the "
		 "paper's. Phases of BT keep all but a few buffers in use" },
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 11",
	  .what = "peak of registered memory saved, LU",
	  .unit = "%",
	  .number = 18.43,
	  .low = 12,
	  .high = 25,
	  .good = 1,
	  HELPER_NAS("lu"),
	  .why = "The shapes have the buffers of NPB, sizes and times of class "
		 "D; mean over three noise levels (noise of 0.1 % alone until "
		 "LU had been seen), since nobody knows the "
		 "paper's. The shape has one pair of buffers for both "
		 "directions, as NPB, and waits for the send before it posts "
		 "the receive: at little noise one of two buffers is free at a "
		 "time, which is half, and from 1 % of noise on both are "
		 "registered at some moment, which is nothing" },
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 11",
	  .what = "peak of registered memory saved, SP",
	  .unit = "%",
	  .number = 8.68,
	  .low = 5,
	  .high = 16,
	  .good = 1,
	  HELPER_NAS("sp"),
	  .why = "The shapes have the buffers of NPB, sizes and times of class "
		 "D; mean over three noise levels (noise of 0.1 % alone until "
		 "LU had been seen), since nobody knows the "
		 "paper's. The first iterations, before periods are known, set "
		 "the peak" },
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 11",
	  .what = "peak of registered memory saved, CG",
	  .unit = "%",
	  .number = 0,
	  .low = -1,
	  .high = 1,
	  .good = 1,
	  HELPER_NAS("cg"),
	  .why = "The shapes have the buffers of NPB, sizes and times of class "
		 "D; mean over three noise levels (noise of 0.1 % alone until "
		 "LU had been seen), since nobody knows the "
		 "paper's. Both buffers are needed at once" },
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 11",
	  .what = "peak of registered memory saved, FT",
	  .unit = "%",
	  .number = 31.0,
	  .low = 25,
	  .high = 36,
	  .good = 1,
	  HELPER_NAS("ft"),
	  .why = "The shapes have the buffers of NPB, sizes and times of class "
		 "D; mean over three noise levels (noise of 0.1 % alone until "
		 "LU had been seen), since nobody knows the "
		 "paper's. One of three arrays is free at any time: a third" },
	{ .row = "H1",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 9",
	  .what = "latency above leave-pinned at most, more than 1 MiB, reuse",
	  .unit = "%",
	  .number = 5,
	  .low = 0,
	  .high = 5,
	  .good = -1,
	  .profile = "ou2009",
	  .bench = "helper",
	  .key = "more_percent",
	  .common = { "experiment=latency", "shape=reuse", "large=yes" },
	  .own = "scheme=helper",
	  .over = "bytes",
	  .extreme = true,
	  .model = pn_model_learning,
	  .idea = PN_IDEA_HELPER,
	  .limit = 5,
	  .command = "pinion bench helper --experiment latency",
	  .why = "\"Less than 5 %\": the largest of the sizes is judged. The "
		 "model: two of ten iterations register, with memory left "
		 "pinned one. Figures of these rows were in helper.md before "
		 "the claim was written" },
	{ .row = "H3",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 5",
	  .what = "predictions by call sites within 5 %",
	  .unit = "%",
	  .number = 94.68,
	  .low = 90,
	  .high = 96,
	  .good = 1,
	  .key = "within_5_percent",
	  PREDICTOR("shortest", "2"),
	  .why = "Mean over three noise levels: 99, 99 and 24 %. At noise of "
		 "10 % a gap is rarely within 5 % of the shortest one seen, "
		 "which is what the paper predicts so that nothing comes too "
		 "early; the mean of the gaps (periodicity) is within 5 % for "
		 "half of them" },
	{ .row = "H3",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 5",
	  .what = "predictions by call sites within 0.5 %",
	  .unit = "%",
	  .number = 74.89,
	  .low = 65,
	  .high = 85,
	  .good = 1,
	  .key = "within_0_5_percent",
	  PREDICTOR("shortest", "2"),
	  .why = "As above: 99, 24 and 0.5 %; noise of 1 % and more cannot be "
		 "predicted within 0.5 %" },
	{ .row = "H5",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 5",
	  .what = "predictions by periodicity within 5 %",
	  .unit = "%",
	  .number = 84.93,
	  .low = 75,
	  .high = 95,
	  .good = 1,
	  .key = "within_5_percent",
	  PREDICTOR("periodic", "128"),
	  .why = "As above" },
	{ .row = "H10",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 12",
	  .what = "peak of a machine saved, four ranks each, first grouping",
	  .unit = "%",
	  .number = 49.39,
	  .low = 40,
	  .high = 60,
	  .good = 1,
	  AGGREGATION("1"),
	  .why = "FT on 16 ranks; groupings are random in both" },
	{ .row = "H10",
	  .paper = PN_PAPER_HELPER,
	  .where = "figure 12",
	  .what = "peak of a machine saved, second grouping",
	  .unit = "%",
	  .number = 41.7,
	  .low = 33,
	  .high = 52,
	  .good = 1,
	  AGGREGATION("2"),
	  .why = "As above" },
	{ .row = "H7",
	  .paper = PN_PAPER_HELPER,
	  .where = "section 4.3",
	  .what = "overhead of recording a message of 17 KiB",
	  .unit = "%",
	  .number = 14.02,
	  .low = 5,
	  .high = 20,
	  .good = -1,
	  .home = PN_PLACE_SOFT,
	  .bench = "helper",
	  .key = "overhead_percent",
	  .common = { "experiment=recording", "bytes=17K" },
	  .command = "pinion bench helper --experiment recording",
	  .why = "Real time; the paper's message crosses a network, ours does "
		 "not" },
	/* --- Heap --- */
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 4, Stria",
	  .what = "new registered memory from the heap",
	  .unit = "times",
	  .number = 134,
	  .low = 100,
	  .high = 180,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_new,
	  HEAP("stria", "new"),
	  .why = "Faulting in a slab's pages takes longer than registering it "
		 "(pinion bench slab); the model takes that from untouched "
		 "pages of pinion bench register" },
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 5, Stria",
	  .what = "memory used again",
	  .unit = "times",
	  .number = 253,
	  .low = 180,
	  .high = 350,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_reuse,
	  HEAP("stria", "reuse"),
	  .why = "The model takes 4 ns for alloc and free of up to 64 KiB; "
		 "above "
		 "that the pages of a run are marked under a lock, 2 us for "
		 "2 MiB. The TCMalloc of the paper takes some 300 ns" },
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 6, Stria",
	  .what = "put from it",
	  .unit = "times",
	  .number = 1.6,
	  .low = 1.3,
	  .high = 2,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_put,
	  HEAP("stria", "put"),
	  .why = "A put between processes of one host is faster than the "
		 "paper's link, so registering weighs more" },
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 4, Mutrino",
	  .what = "new registered memory from the heap",
	  .unit = "times",
	  .number = 3.4,
	  .low = 2.5,
	  .high = 5,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_new,
	  .home_only = true,
	  HEAP("mutrino", "new"),
	  .why = "As for Stria" },
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 5, Mutrino",
	  .what = "memory used again",
	  .unit = "times",
	  .number = 2054,
	  .low = 1500,
	  .high = 3000,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_reuse,
	  .home_only = true,
	  HEAP("mutrino", "reuse"),
	  .why = "As for Stria" },
	{ .row = "A4",
	  .paper = PN_PAPER_HEAP,
	  .where = "figure 6, Mutrino",
	  .what = "put from it",
	  .unit = "times",
	  .number = 4.5,
	  .low = 3.5,
	  .high = 6,
	  .good = 1,
	  .fitted = "the profile's registration line was fitted to this "
		    "paper's figures",
	  .model = pn_model_heap_put,
	  .home_only = true,
	  HEAP("mutrino", "put"),
	  .why = "A put between processes of one host is faster than the "
		 "paper's link, so registering weighs more" },
	/* --- Pipeline --- */
	{ .row = "P5",
	  .paper = PN_PAPER_PIPELINE,
	  .where = "figure 5",
	  .what = "pipeline over leave-pinned, 8 MiB used once",
	  .unit = "times",
	  .number = 1.67,
	  .low = 1.5,
	  .high = 1.8,
	  .good = 1,
	  .fitted = "woodall2006 was fitted to this figure",
	  .model = pn_model_pipeline,
	  .idea = PN_IDEA_PIPELINE,
	  MESSAGES("protocol=pipeline", "protocol=cached", "reuse=1"),
	  .how = PN_CLAIM_TIMES,
	  .why = "Registering is hidden while it is shorter than moving. The "
		 "model takes the best fragment; it took 256 KiB until a run "
		 "under cx5 had been seen. Where a CPU moves the bytes nothing "
		 "hides; and on soft both ends sleep and wake between "
		 "fragments: 83 context switches for a message of 8 MiB, 8 "
		 "when its memory is left pinned" },
	{ .row = "P9",
	  .paper = PN_PAPER_PIPELINE,
	  .where = "figure 6",
	  .what = "uses of a buffer from which leave-pinned is faster",
	  .unit = "uses",
	  .number = 45,
	  .low = 35,
	  .high = 60,
	  .good = 1,
	  .model = pn_model_meeting,
	  MESSAGES("protocol=cached", "protocol=pipeline", NULL),
	  .how = PN_CLAIM_MEET,
	  .why = "40 to 50 in the paper; later is better, since then the "
		 "pipeline costs less. woodall2006 was fitted to figure 5, not "
		 "to this one" },
	/* --- Region cache --- */
	{ .row = "M2",
	  .paper = PN_PAPER_CACHE,
	  .where = "figure 10",
	  .what = "more hits under MRE than under LRU, HTTPD",
	  .unit = "%",
	  .number = 10,
	  .low = 8,
	  .high = 15,
	  .good = 1,
	  .key = "mre_more_hits_percent",
	  .model = pn_model_same,
	  SIM_PAPER("httpd"),
	  .why = "Mean over eight cache sizes; how popular the paper's files "
		 "are is not known" },
	{ .row = "M3",
	  .paper = PN_PAPER_CACHE,
	  .where = "figure 11",
	  .what = "time saved by MRE over the pin-down cache, Cello92",
	  .unit = "%",
	  .number = 10,
	  .low = 8,
	  .high = 12,
	  .good = 1,
	  .key = "mre_saves_percent",
	  .model = pn_model_batch,
	  SIM_PAPER("cello92"),
	  .why = "Mean over eight cache sizes, against the paper's best size: "
		 "its sizes are in a picture alone. By batches alone: nearly "
		 "all regions are of one size" },
	{ .row = "M8",
	  .paper = PN_PAPER_CACHE,
	  .where = "figure 12",
	  .what = "cost of registering saved against no cache, HTTPD",
	  .unit = "%",
	  .number = 70,
	  .low = 60,
	  .high = 75,
	  .good = 1,
	  .key = "mre_saves_of_none_percent",
	  .model = pn_model_no_cache,
	  SIM_PAPER("httpd"),
	  .why = "Mean over eight cache sizes, 2 to 256 MiB, against the "
		 "paper's best size (\"up to 70 %\"): its sizes are in a "
		 "picture alone. Our largest cache holds half of the files" },
	{ .row = "M10",
	  .paper = PN_PAPER_CACHE,
	  .where = "section 8",
	  .what = "saved on the critical path, one page",
	  .unit = "%",
	  .number = 68,
	  .low = 64,
	  .high = 72,
	  .good = 1,
	  .key = "share_without_wire_percent",
	  .model = pn_model_overlap_share,
	  .idea = PN_IDEA_OVERLAP,
	  .fitted = "the paper computes this number from the same costs",
	  FRRWP("pages=1"),
	  .why = "15.42 / 22.84 without pages and wire, as the paper counts" },
	{ .row = "M7",
	  .paper = PN_PAPER_CACHE,
	  .where = "section 8",
	  .what = "time saved by conditional writes, 8 pages",
	  .unit = "us",
	  .number = 21.58,
	  .low = 21,
	  .high = 22,
	  .good = 1,
	  .key = "saved_us",
	  .model = pn_model_overlap_us,
	  .fitted = "the paper computes this number from the same costs",
	  FRRWP("pages=8"),
	  .why = "A grant is longer than a bare key" },
	/* --- Reuse --- */
	{ .row = "R1",
	  .paper = PN_PAPER_REUSE,
	  .where = "figure 4a",
	  .what = "latency saved on the fast path, 8 KiB",
	  .unit = "%",
	  .number = 14,
	  .low = 11,
	  .high = 16,
	  .good = 1,
	  .model = pn_model_direct,
	  .fitted = "rashti2011 was fitted to the 15 % bound at this size",
	  REUSE("pingpong"),
	  .why = "15 % is the bound of the paper's own model. soft takes 8 "
		 "KiB "
		 "inline, so there is no copy to save. With reuse=on, which is "
		 "forced there, a send ends only when the device has read the "
		 "buffer, and the program waits for that; by default nothing "
		 "is looked up" },
	{ .row = "R6",
	  .paper = PN_PAPER_REUSE,
	  .where = "figure 5",
	  .what = "the same, a thousand buffers, the i-th used i times",
	  .unit = "%",
	  .number = 12.7,
	  .low = 10,
	  .high = 15,
	  .good = 1,
	  .model = pn_model_direct,
	  .fitted = "follows from the bound that rashti2011 was fitted to",
	  REUSE("spectrum"),
	  .why = "As above" },
	{ .row = "R6",
	  .paper = PN_PAPER_REUSE,
	  .where = "figure 6a",
	  .what = "latency of a put saved, 8 KiB",
	  .unit = "%",
	  .number = 20,
	  .low = 16,
	  .high = 23,
	  .good = 1,
	  .model = pn_model_direct_put,
	  REUSE("put"),
	  .why = "The profile was fitted to two-sided messages alone" },
	{ .row = "R6",
	  .paper = PN_PAPER_REUSE,
	  .where = "figure 6b",
	  .what = "latency of a get saved, 8 KiB",
	  .unit = "%",
	  .number = 17,
	  .low = 13,
	  .high = 20,
	  .good = 1,
	  .model = pn_model_direct_get,
	  REUSE("get"),
	  .why = "The model counts two latencies; it counted one until a run "
		 "under cx5 had been seen" },
	{ .row = "R4",
	  .paper = PN_PAPER_REUSE,
	  .where = "table 2",
	  .what = "uses that pay for a registration, 4 KiB, fast path",
	  .unit = "uses",
	  .number = 60,
	  .low = 54,
	  .high = 66,
	  .good = -1,
	  .fitted = "rashti2011 was fitted to this row",
	  .model = pn_model_uses,
	  .profile = "rashti2011",
	  .bench = "reuse",
	  .key = "minimum_uses",
	  .common = { "what=threshold", "bytes=4K", "path=fast-path" },
	  .command = "pinion bench reuse --device sim:cost=rashti2011",
	  .why = "R / (C - V) of the costs. No number: sending without a copy "
		 "gains nothing there, so no number of uses pays" },
};

const size_t pn_nclaims = PN_ARRAY_LEN(pn_claims);

/* The paper's limit for the helper's price in time is 5 %. */
#define ON_DEVICE(key_)                                      \
	.unit = "times", .good = -1, .idea = PN_IDEA_HELPER, \
	.bench = "helper", .key = (key_), .on_gpu = true,    \
	.common = { "mode=learned" },                        \
	.command = "pinion bench helper --experiment rhythm"

const struct pn_claim pn_effects[] = {
	{ .what = "registered memory, program with a rhythm",
	  ON_DEVICE("memory") },
	{ .what = "its time", .limit = 5, ON_DEVICE("time") },
};

const size_t pn_neffects = PN_ARRAY_LEN(pn_effects);

const struct pn_tested pn_tested[] = {
	{ "H2", "", "queues: the producer never waits, deadlines in order",
	  "tests/helper/test_ring.c, test_job_queue.c" },
	{ "H4", "", "call sites, periods, deadlines",
	  "tests/helper/test_site.c" },
	{ "H6", "", "conditions for both queues, first-time rule",
	  "tests/helper/test_helper.c; see H1" },
	{ "H8", "table 1, figure 8",
	  "idle cores: own, aggressive, conservative",
	  "tests/helper/test_share.c, test_registry.c; pinion bench helper "
	  "--experiment cores" },
	{ "H9", "figure 3",
	  "completes although leaving everything pinned exceeds the limit",
	  "pinion bench helper --experiment limit, "
	  "tests/helper/test_helper.c" },
	{ "A1", "", "heap apart from malloc, thread caches",
	  "tests/heap/test_heap.c, test_heap_model.c" },
	{ "A2", "", "pointer to region and keys", "tests/heap/test_heap.c" },
	{ "A3", "", "ordinary memory pinned explicitly",
	  "tests/cache/test_cache_api.c" },
	{ "A5", "figure 7", "a Kokkos View in registered memory",
	  "tests/heap/test_heap_kokkos.cpp; pinion bench view: the paper's "
	  "curves are a picture" },
	{ "A6", "beyond the paper",
	  "several heaps, memory returned, one budget",
	  "tests/heap/test_heap_footprint.c, test_heap_message.c" },
	{ "P1", "figure 1", "eager data with the MATCH header",
	  "tests/message/endpoint/test_message.c" },
	{ "P2", "", "copy in and out",
	  "tests/message/endpoint/test_message.c, test_copies.c" },
	{ "P3", "", "register on demand",
	  "tests/message/endpoint/test_message.c" },
	{ "P4", "",
	  "leave pinned: notifications, or memory kept from the system",
	  "tests/cache/test_cache_release.c, in each mode" },
	{ "P6", "", "the caching pipeline",
	  "tests/message/twosided/test_figures.c" },
	{ "P7", "", "one message over several rails",
	  "tests/message/connection/test_rails.c; pinion bench rails" },
	{ "P8", "", "every limit at run time", "pinion config" },
	{ "M1", "", "exact, subset, intersection, none; lists in one call",
	  "tests/cache/test_cache_model.c, against a naive model" },
	{ "M4", "", "pin-down cache and FMRD to compare with",
	  "tests/cache/test_policy.c; see M2, M3" },
	{ "M5", "", "handles allocated beforehand",
	  "tests/device/test_soft_slots.c; pinion bench slots measures what "
	  "it saves" },
	{ "M6", "", "FRRWP", "tests/message/onesided/test_grants.c; see M10" },
	{ "M9", "", "registering against writing, by size",
	  "pinion bench register: the paper's curve is a picture" },
	{ "R2", "", "puts and gets directly from buffers",
	  "tests/message/protocol/test_reuse.c, test_onesided.c" },
	{ "R3", "", "the buffer usage table",
	  "tests/message/protocol/test_reuse.c" },
	{ "R5", "", "adaptation", "tests/message/protocol/test_reuse.c" },
};

const size_t pn_ntested = PN_ARRAY_LEN(pn_tested);

const struct pn_tested pn_absent[] = {
	{ "H1", "tables 2 to 4", "run times of NAS, class D, on four nodes",
	  "needs four hosts with an adapter each; the shapes of the programs "
	  "in virtual time stand in (nas)" },
	{ "H8", "table 1", "run times by policy of idle cores",
	  "needs hosts of eight cores; virtual time stands in (cores)" },
	{ "H10", "figures 13 and 14", "scaling of FT on 16 to 64 nodes",
	  "needs as many hosts; virtual time stands in (scaling)" },
	{ "A4", "figures 1 to 6", "times on Aries and ConnectX-5",
	  "needs the machines; their lines of cost are declared on soft, and "
	  "fitted" },
	{ "A5", "figure 7", "a View moved between two nodes",
	  "needs two hosts; between two processes of one host (view). The "
	  "paper's numbers are in a picture alone" },
	{ "P7", "section 5.1", "one message over two adapters",
	  "needs two adapters in each host; virtual time stands in (rails)" },
	{ "P9", "section 6", "b_eff and Linpack between nodes",
	  "needs as many hosts; ranks on one host share its cores and its "
	  "memory. bench/hpcc -j gives rows of such ranks for --rows" },
	{ "P9", "section 6", "times of NAS through MPI under each protocol",
	  "needs as many hosts; on one, ranks wait for each other's cores, and "
	  "times show that alone. tools/npb runs them and checks results" },
	{ "M2 M3 M8", "figures 10 to 12", "the traces Cello92 and HTTPD",
	  "not at hand; generated streams with their published sizes stand in "
	  "(paper-003)" },
	{ "M5", "table 1", "fast registration by an adapter",
	  "needs an adapter with fast registration, and a driver that offers "
	  "it to programs; slots of io_uring stand in (slots)" },
	{ "M10", "section 8", "FRRWP and conditional writes by a driver",
	  "needs a driver in the kernel, and the paper adds up costs itself; "
	  "virtual time stands in (frrwp)" },
	{ "R1 R6", "figures 4 to 7", "times on InfiniBand and iWARP",
	  "needs two hosts with adapters; soft and rxe move bytes on the "
	  "CPU (reuse-soft, tests/vm/rows)" },
	{ "R6", "figure 8", "broadcast and scatter between four nodes",
	  "needs four hosts; ranks of one host share its cores (collectives)" },
	{ "R6", "figure 9, table 3", "run times of LU, CG, AMG2006 and MILC",
	  "needs four hosts, and SPEC MPI2007 has to be bought; a program with "
	  "such buffers stands in (reuse)" },
};

const size_t pn_nabsent = PN_ARRAY_LEN(pn_absent);
