/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * call -- one copy while it is being made: the memory, the CUDA context, the
 * method.
 *
 * registered, else enter -> is_ours -> driver, or move -> leave. The driver
 * alone may be called without entering.
 */
#ifndef PN_COPY_CALL_IMPL_H
#define PN_COPY_CALL_IMPL_H

#include "copy/copy_impl.h"

struct pn_copy_call {
	struct pn_copier *copier;
	const struct pn_copy_op *op;
	/* Of the stream, set by enter. */
	pn_cu_context context;
	unsigned long long context_id;
	bool pushed;
	int capture_mode; /* of the thread, before */
	/* Set by is_ours. */
	enum pn_copy_direction direction;
	struct pn_range host;
	pn_cu_deviceptr gpu;
	bool idle;     /* the stream had nothing to do */
	bool measured; /* the time of the copy is that of the copy alone */
	bool held;     /* registrations of ours are in the range */
	bool used;     /* counted as a use of the memory */
	int status;    /* an error that is not the driver's */
};

/* Makes the stream's context current. Errors of the driver. */
pn_cu_result pn_copy_call_enter(struct pn_copy_call *call);
void pn_copy_call_leave(struct pn_copy_call *call);

/* Whether one end is unpinned, the other memory of a GPU, and the stream not
 * being captured. */
bool pn_copy_call_is_ours(struct pn_copy_call *call);

/* The driver's copy. Where registrations of ours are in the way, sets `held`
 * and copies nothing. */
pn_cu_result pn_copy_call_driver(struct pn_copy_call *call);

/* The driver's copy, whatever is in the way: registrations of ours are given
 * up first. They may come between the look at the memory and the copy. */
pn_cu_result pn_copy_call_by_driver(struct pn_copy_call *call);

/* The driver's copy of what stays registered in part, through memory that is
 * not. -EBUSY in `status`: the stream is being captured. */
pn_cu_result pn_copy_call_unregistered(struct pn_copy_call *call);

/* The fastest method; returns when the bytes have moved. */
pn_cu_result pn_copy_call_move(struct pn_copy_call *call);

/* Counts a use of the memory, once, which may begin to register it. */
void pn_copy_call_use(struct pn_copy_call *call);

/* A copy of memory that is all registered, without entering. False: it is not,
 * or the driver refused: look at the memory. */
bool pn_copy_call_registered(struct pn_copy_call *call);

/* Pins the memory of the call if it is all registered. False: it is not, or was
 * released meanwhile: bounce buffers do it. */
bool pn_copy_call_pin(const struct pn_copy_call *call, struct pinion_pin *out);

/* Copies pinned memory in the caller's stream; the second one also waits,
 * counts and unpins. */
pn_cu_result pn_copy_call_segments(const struct pn_copy_call *call,
				   const struct pinion_pin *pin);
pn_cu_result pn_copy_call_pinned(struct pn_copy_call *call,
				 struct pinion_pin *pin);

/* The errno of a copy that failed; logs what the driver alone can explain. */
int pn_copy_call_error(const struct pn_copy_call *call, pn_cu_result result);

/* Prepares a job for the call that nobody has joined. */
void pn_copy_call_job(const struct pn_copy_call *call, struct pn_copy_job *job);

/* Lets the streams of a job wait for what the stream has to do. */
pn_cu_result pn_copy_call_order(const struct pn_copy_call *call,
				struct pn_copy_job *job);

/* Counts a job that ended. */
void pn_copy_call_count(struct pn_copier *copier,
			const struct pn_copy_job *job);

/* What to ask choose.h. */
struct pn_copy_question pn_copy_call_question(const struct pn_copy_call *call);

#endif
