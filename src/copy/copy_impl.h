/* SPDX-License-Identifier: BSD-2-Clause */
/* Private to src/copy: the parts of a copier. copy.h explains the nouns. */
#ifndef PN_COPY_COPY_IMPL_H
#define PN_COPY_COPY_IMPL_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/range.h"
#include "copy/background.h"
#include "copy/choose.h"
#include "copy/copy.h"
#include "device/cuda/cuda.h"

#define PN_COPY_MAX_PARTICIPANTS 16
#define PN_COPY_NBUFFERS	 2
#define PN_COPY_NSTREAMS	 2
#define PN_COPY_NWORDS		 (PN_PAGE_BYTES / sizeof(uint32_t))
/* Below, the driver's copy is the fastest on every machine that was measured,
 * and looking at the memory would cost what is to be gained. */
#define PN_COPY_MIN_BYTES	 ((size_t)1 << 20)

/* Streams of our own in one CUDA context, for one job at a time. */
struct pn_copy_streams {
	struct pn_list link; /* copier->idle_streams */
	pn_cu_context context;
	unsigned long long id; /* tells a context from a later one there */
	pn_cu_stream copy[PN_COPY_NSTREAMS];
	pn_cu_event order; /* recorded in the caller's stream */
};

/* Says when a copy has ended (streams.c). */
struct pn_copy_completion {
	_Atomic uint32_t *word;
	pn_cu_deviceptr at; /* of the word, for the GPU; 0: there is none */
	uint32_t value;	    /* that the GPU will write */
	uint64_t poll_ns;   /* polled for so long, before sleeping */
	pn_cu_event event;  /* without a word */
	pn_cu_stream stream;
};

/* The bounce buffers, and behind them a page of words for completions. */
struct pn_copy_staging {
	struct pn_list link; /* copier->free_staging */
	struct pn_mr mr;     /* addr NULL: nothing */
	struct pn_copy_completion completions[PN_COPY_NBUFFERS];
	uint32_t generation; /* of the copier, when the buffers were made */
};

/* How a copy of some size is divided (shape.c). */
struct pn_copy_shape {
	unsigned participants;
	size_t block_bytes;
	bool nontemporal;
};

/* Blocks of the pipeline: registering has a fixed cost. */
#define PN_COPY_PIPELINE_BYTES ((size_t)16 << 20)

/* How blocks of a job move that are not registered. */
enum pn_copy_blocks { PN_BLOCKS_BOUNCE, PN_BLOCKS_REGISTER };

struct pn_copy_job {
	struct pn_list link; /* copier->jobs */
	enum pn_copy_direction direction;
	enum pn_copy_blocks blocks;
	bool mixed; /* blocks may be registered */
	char *host;
	pn_cu_deviceptr gpu;
	size_t bytes, block_bytes;
	bool nontemporal;
	/* The participants' CUDA context. */
	pn_cu_context context;
	unsigned long long context_id;
	struct pn_copy_streams *streams;
	_Atomic unsigned nstreams; /* handed out to participants */
	/* What the streams wait for; NULL: nothing. */
	pn_cu_event order;
	/* A word that the caller's stream waits for, and its value when the
	 * copy has ended (request.c); NULL: none. */
	_Atomic uint32_t *held_word;
	uint32_t held_value;
	_Atomic size_t next_block;
	_Atomic size_t bounced_bytes, registered_bytes;
	_Atomic int status;	     /* the first error */
	_Atomic pn_cu_result result; /* of the driver, behind status */
	unsigned wanted;	     /* lock: more may join */
	unsigned joined;	     /* lock: participants inside */
	_Atomic uint32_t ended;	     /* futex: 1 */
	/* With a request: called by the last participant. */
	void (*finish)(struct pn_copy_job *job);
};

struct pn_copier {
	struct pn_copier_attr attr;
	const struct pn_cuda_driver *cu;
	struct pn_copy_times times;
	struct pn_background background;

	struct pn_mutex lock;
	struct pn_list jobs;	     /* lock: that want participants */
	struct pn_list free_staging; /* lock */
	struct pn_list requests;     /* lock: that have not been taken */
	struct pn_copy_staging staging[PN_COPY_MAX_PARTICIPANTS];
	_Atomic unsigned nfree;	   /* written under lock */
	_Atomic unsigned nstaging; /* grows under lock */
	unsigned max_participants; /* by cores */
	struct pn_mutex growing;   /* held while a staging set is made */
	unsigned refused; /* growing: copies until the budget is asked again */
	/* Counts the times that the device's CUDA context went: older staging
	 * sets and words are registered anew. */
	_Atomic uint32_t generation;
	_Atomic unsigned long long context_id; /* as seen last; 0: never */
	struct pn_list idle_streams;	       /* lock */
	size_t block_bytes;		       /* of a bounce buffer */
	size_t min_bytes;		       /* below, the driver copies */
	bool may_poll;			       /* a core can be spared for it */

	/* Words that streams wait for and write (words.c); NULL: none yet. */
	struct pn_mr words_mr;		/* growing */
	bool words_registered;		/* growing */
	uint32_t words_generation;	/* growing */
	_Atomic uint32_t *words;	/* lock */
	bool word_used[PN_COPY_NWORDS]; /* lock */

	pthread_t threads[PN_COPY_MAX_PARTICIPANTS]; /* growing */
	_Atomic unsigned nthreads;
	_Atomic unsigned nasleep;
	_Atomic uint32_t posted; /* futex: work came */
	_Atomic bool closing;
	cpu_set_t cpus; /* of workers */
	bool has_cpus;

	_Atomic uint64_t driver, bounced, registered, mixed;
	_Atomic uint64_t bounced_bytes, registered_bytes;
};

/* --- streams.c ------------------------------------------------------------ */

/* Most copies of a block end within it; after it the wait is for work that the
 * caller's stream had before. */
#define PN_COPY_POLL_NS (300 * PN_NS_PER_US)

/* Returned beside results of the driver: the stream that waits for the copy
 * stops the copy. */
#define PN_COPY_STUCK (-1)

/* Gives the job streams in its context, which is current. */
pn_cu_result pn_copy_streams_take(struct pn_copier *copier,
				  struct pn_copy_job *job);
void pn_copy_streams_return(struct pn_copier *copier, struct pn_copy_job *job);
void pn_copy_streams_close(struct pn_copier *copier);

/* Marks the end of what is in the stream now; waits for it. */
pn_cu_result pn_copy_completion_record(struct pn_copier *copier,
				       struct pn_copy_completion *completion,
				       pn_cu_stream stream);
pn_cu_result pn_copy_completion_wait(struct pn_copier *copier,
				     struct pn_copy_completion *completion,
				     const struct pn_copy_job *job);

/* Of a copy that has ended, though nobody waited for its completion. */
void pn_copy_completion_drop(struct pn_copier *copier,
			     struct pn_copy_completion *completion);

/* --- shape.c -------------------------------------------------------------- */

/* What is best for a copy, with the staging sets that there may be at most. */
struct pn_copy_shape pn_copy_shape(const struct pn_copier *copier,
				   enum pn_copy_direction direction,
				   size_t bytes);
/* As memcpy(), but leaves the destination out of the CPU's caches. */
void pn_copy_nontemporal(void *dst, const void *src, size_t bytes);

/* --- staging.c ------------------------------------------------------------ */

/* Makes staging sets until there are n, as far as the budget allows. */
void pn_copy_staging_grow(struct pn_copier *copier, unsigned n);
/* A free staging set; NULL: none. */
struct pn_copy_staging *pn_copy_staging_take(struct pn_copier *copier);
/* The same, but the staging set has to be renewed before it is used. */
struct pn_copy_staging *pn_copy_staging_take_locked(struct pn_copier *copier)
	PN_REQUIRES(&copier->lock);
/* Makes the buffers anew if the CUDA context has gone; false: not possible. */
bool pn_copy_staging_renew(struct pn_copier *copier,
			   struct pn_copy_staging *staging);
void pn_copy_staging_return(struct pn_copier *copier,
			    struct pn_copy_staging *staging);
/* Gives up all buffers. All staging sets are free. */
void pn_copy_staging_close(struct pn_copier *copier);

/* --- blocks.c ------------------------------------------------------------- */

/* Moves blocks of the job until none is left. The context is current, and the
 * job has streams. */
void pn_copy_blocks_move(struct pn_copier *copier,
			 struct pn_copy_staging *staging,
			 struct pn_copy_job *job);
/* Ends the job at the next block. */
void pn_copy_job_fail(struct pn_copy_job *job, int status, pn_cu_result result);
/* Lets the pages of a destination that was never touched become huge pages. */
void pn_copy_pages_prepare(const struct pn_copier *copier, char *host,
			   size_t bytes);

/* --- workers.c ------------------------------------------------------------ */

/* Starts workers until there are n, as far as possible; false: there are none.
 */
bool pn_copy_workers_start(struct pn_copier *copier, unsigned n);
/* Offers a job to job->wanted workers. */
void pn_copy_job_post(struct pn_copier *copier, struct pn_copy_job *job);
/* A staging set became free. */
void pn_copy_workers_notify(struct pn_copier *copier);
/* The owner, a participant, has found no block any more: waits for the others.
 */
void pn_copy_job_wait(struct pn_copier *copier, struct pn_copy_job *job);
void pn_copy_workers_close(struct pn_copier *copier);

/* Counts in copier->generation if the device's CUDA context is another one than
 * last time. */
void pn_copy_check_generation(struct pn_copier *copier);

/* --- words.c -------------------------------------------------------------- */

/* A word that nobody else uses, and its address for the GPU. NULL: none, or the
 * GPU has no such operations. */
_Atomic uint32_t *pn_copy_word_take(struct pn_copier *copier,
				    pn_cu_deviceptr *at);
void pn_copy_word_return(struct pn_copier *copier, _Atomic uint32_t *word);
void pn_copy_words_close(struct pn_copier *copier);

/* --- request.c ------------------------------------------------------------ */

/* Whether a stream of this process waits for a request that is under way. */
bool pn_copy_stream_is_held(void);
/* Waits for the copies of all requests and frees them. */
void pn_copy_requests_close(struct pn_copier *copier);

/* --- affinity.c ----------------------------------------------------------- */

/* The CPUs near a PCI device that this thread may use; false: not known. */
bool pn_copy_cpus_near(const char *bus_id, cpu_set_t *out);
/* Its NUMA node; -1: not known. */
int pn_copy_node_of(const char *bus_id);
/* How many CPUs this thread may use. */
unsigned pn_copy_ncores(void);

#endif
