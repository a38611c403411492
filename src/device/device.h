/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device -- the contract of a thing that needs memory registered and moves
 * bytes: an RDMA adapter (`verbs`), a software one (`soft`), a simulated one
 * (`sim`). The engine (cache, heap, helper, message) speaks only this.
 *
 * Nouns
 *   device        one adapter port opened by one process (on `sim`: one node).
 *   registration  a byte range that the device may touch: struct pn_mr, whose
 *                 storage is the caller's. Its pages stay pinned until it is
 *                 deregistered, whatever the program does to its mappings.
 *   key           a number that names a registration in operations: `lkey` in
 *                 the owner's own segments, `rkey` in those of its peers. 0 is
 *                 never a key (a registrar's may be anything). A key of a dead
 *                 registration never becomes the key of another one within any
 *                 practical time.
 *   domain        the registrations of a device. A device can be opened to
 *                 share the domain of another (pn_device_open_shared()): it has
 *                 peers, operations and completions of its own, and the keys of
 *                 each are good for both.
 *   peer          the way to one other device (or to the device itself).
 *   operation     a send, write, read or atomic posted to a peer.
 *   completion    what the device has to say: an operation ended, a message
 *                 arrived, a peer came up or went down.
 *
 * Life
 *   open -> address/attach -> register -> post, poll, wait -> deregister ->
 *   close. close() ends everything that is left: operations in flight are
 *   abandoned, registrations die, peers see the device go down.
 *   A peer is born in attach() or when it attaches to us (a completion PEER_UP
 *   brings it), and lives until close(), also when it is down: pointers to it
 *   stay good. One that is down never comes up again; with PN_CAP_ATTACH_AGAIN
 *   the device at its address can be attached anew, which makes another peer.
 *
 * Order
 *   Sends and writes posted to one peer take effect there in the order of
 *   posting: whoever sees a send (or a write's immediate) sees the bytes of
 *   the writes posted before it. Reads and atomics begin in order; their data
 *   is there when they complete. An operation with PN_OP_FENCE begins after
 *   all earlier reads and atomics to that peer have completed. Operations on
 *   one peer complete in the order of posting. Different peers: no order.
 *
 * Ends
 *   A send, or a write with PN_OP_IMM, that completed with 0 will be polled at
 *   its target, even if the peer goes down there before: PEER_DOWN comes last,
 *   behind everything that arrived and behind the completions of everything
 *   that was posted. One that completed with -ECONNRESET may have arrived, too.
 *
 * Buffers
 *   A segment must stay registered and its bytes must stay untouched (for a
 *   read: unlooked at) until the completion, except with PN_OP_INLINE, where
 *   the bytes are taken before post() returns and need no key.
 *   Sends arrive in memory of the receiving device: nobody posts receives. A
 *   RECV completion lends `data` until pn_device_return_buffer(); the oldest
 * should be released first, since senders stall when the receiver's memory is
 * full.
 *
 * Threads
 *   register, deregister, rekey, pinned, now, copy, consume_cpu, wake, block,
 *   unblock: any thread,
 *   concurrently. All others: any thread, one at a time per device when it was
 *   opened single_threaded; then no lock is paid for. poll and wait may run in
 *   one thread while others post, unless single_threaded.
 *   Callers hold no lock across wait, block, register, deregister, copy and
 *   consume_cpu: in virtual time these let other tasks of the same thread run.
 *
 * Errors
 *   0 or a negative errno. A call that fails has changed nothing. Parameters
 *   that break the contract (NULL where not allowed) are bugs: the device may
 *   assert. What comes from users or peers (addresses, lengths, keys, blobs)
 *   is checked and refused. What is wrong with an operation is said by post()
 *   or by its completion, as the device finds out. In both:
 *     -EINVAL        malformed operation, too many segments, too long
 *     -EAGAIN        post: queue full or peer still connecting: poll, retry
 *     -ENOMEM        post: no memory, and nothing in flight whose end would
 *                    tell when to retry
 *     -EFAULT        a local segment is not covered by its lkey
 *     -EACCES        the remote side refused: key unknown or dead, range not
 *                    covered, access not granted
 *     -ECONNREFUSED  the peer will not have us: another user, another version
 *     -ECONNRESET    the peer is gone; every operation still posted to it
 *                    completes so, within 1 s of its death. post() may know
 *                    before PEER_DOWN was polled. Attaching to an address
 *                    where nobody is ends in PEER_DOWN with this
 *     -ENODEV        `sim` only: the device's own node is gone
 *     -ECANCELED     an operation posted before this one to the same peer was
 *                    refused (-EACCES) and the device had to start over.
 *                    iWARP does not say which one was: of several under way,
 *                    the oldest write or read is blamed
 *     -ESTALE        `sim` only: the pages behind a key are no longer the
 *                    program's; on real devices these bytes are lost silently
 *   A refused operation leaves its peer usable.
 *
 * Time
 *   All times are nanoseconds of the device's own clock (now()).
 *
 * Caveat: a device belongs to the process that opened it; after fork() the
 * child must not touch it.
 */
#ifndef PN_DEVICE_DEVICE_H
#define PN_DEVICE_DEVICE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pinion/device.h>

#include "base/cancel.h"
#include "base/compiler.h"
#include "base/pages.h"
#include "config/option.h"

struct pn_account;
struct pn_device;
struct pn_device_ops;

/* --- what a device can do ------------------------------------------------ */

enum pn_capability {
	PN_CAP_GATHER = 1 << 0,	   /* more than one segment per operation */
	PN_CAP_WRITE_IMM = 1 << 1, /* a write can notify the target */
	PN_CAP_ATOMICS = 1 << 2,
	PN_CAP_FAST_REGISTER = 1 << 3, /* slots allocated beforehand (M5) */
	PN_CAP_READ_ONLY = 1 << 4, /* can register memory mapped PROT_READ */
	PN_CAP_RELAXED = 1 << 5,   /* relaxed ordering has an effect */
	PN_CAP_PINS = 1 << 6,  /* pages are really pinned: stale keys hurt */
	PN_CAP_REKEY = 1 << 7, /* rekey() works */
	PN_CAP_FD = 1 << 8,    /* fd() and arm() work */
	PN_CAP_VIRTUAL_TIME = 1 << 9,
	/* Sends are writes into a ring in the receiver's memory, which it
	 * polls (the papers' fast path); else they meet receives that the
	 * device has posted. */
	PN_CAP_RING = 1 << 10,
	PN_CAP_ATTACH_AGAIN = 1 << 11, /* after a peer went down */
	PN_CAP_UNPINNED = 1 << 12,     /* takes PN_ACCESS_UNPINNED */
	/* Its users know no segments: a pin has one registration, and one with
	 * remote access is of exactly the bytes asked for. */
	PN_CAP_ONE_SEGMENT = 1 << 13,
};

/* No limit known: SIZE_MAX. */
struct pn_device_limits {
	size_t max_mr_bytes;	 /* in one registration */
	size_t max_mrs;		 /* registrations at a time */
	size_t max_pinned_bytes; /* what the system lets this process pin */
	bool pinned_by_user;	 /* that is for all processes of its user */
	bool deferred_uncharge;	 /* the system counts pages for a while after */
	size_t max_send_bytes;	 /* in one send */
	size_t max_op_bytes;	 /* in one write or read */
	size_t inline_bytes;	 /* with PN_OP_INLINE; 0: not offered */
	unsigned max_sge;	 /* segments per operation */
	unsigned queue_depth;	 /* operations in flight per peer */
};

/* What things cost, for choosing between them. Line costs are
 * fixed + per_page * (4 KiB pages). */
struct pn_costs {
	double register_ns, register_page_ns;
	double deregister_ns, deregister_page_ns;
	double copy_byte_ns;	    /* pn_copy() of warm memory */
	double put_ns, put_byte_ns; /* one write, post to completion */
	double get_ns, get_byte_ns;
	double send_ns;	  /* the smallest send, post to arrival */
	double lookup_ns; /* one look for a buffer (message/protocol/reuse.h);
			   * only in virtual time */
	double ack_ns;	  /* of put_ns, what passes after the bytes are there */
	/* Writes and reads longer than handoff_bytes go from thread to thread
	 * inside the device, and take so much besides. The first and the last
	 * of these three are set by the device, not measured. */
	size_t handoff_bytes;
	double handoff_ns;
	bool cpu_moves; /* a CPU of the host moves the bytes, none else */
	bool emulated;	/* declared by a profile, not all measured */
};

/* One of a device's costs, which may be learned while it is used. */
static inline double pn_cost(const double *cost)
{
	double value;

	__atomic_load(cost, &value, __ATOMIC_RELAXED);
	return value;
}

/* --- registrations ------------------------------------------------------- */

/* Beside PINION_ACCESS_* bits without remote access: the memory is pinion's own
 * and stays mapped, and is not to be pinned. A device whose CPU moves the bytes
 * can do without. Such a registration is made alone, not in a batch. */
#define PN_ACCESS_UNPINNED (1u << 31)

/* What peers may do. */
#define PN_ACCESS_REMOTE                                          \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)

/* Access is a set of PINION_ACCESS_* bits. Storage is the caller's; fields are
 * the device's once registered. At rest addr and len are as given: a device
 * pins whole pages but grants only the bytes asked for. */
struct pn_mr {
	void *addr;
	size_t len;
	unsigned access;
	unsigned device_slot; /* the device's own */
	uint64_t lkey;
	uint64_t rkey; /* 0 when access grants nothing to peers */
	void *handle;  /* for the user, on a registrar; else NULL */
};

struct pn_pinned {
	size_t live_bytes;   /* pages of live registrations */
	size_t dying_bytes;  /* deregistered, but the kernel still charges them
			      */
	size_t mrs;	     /* live registrations */
	size_t device_bytes; /* pinned by the device for itself (rings, ...) */
};

/* --- peers --------------------------------------------------------------- */

#define PN_ADDRESS_BYTES 128

/* Devices (rails) that one endpoint uses together, at most. */
#define PN_RAILS_MAX 4

/* Names a device for attach(); programs carry it to each other as they like.
 * Starts with a version and the kind of device; the rest is the device's. */
struct pn_address {
	uint32_t len; /* bytes used of data */
	uint8_t data[PN_ADDRESS_BYTES];
};

struct pn_peer {
	struct pn_device *device;
	struct pn_address address;
	void *user; /* the engine's; NULL at birth */
	bool up;    /* PEER_UP has been polled, by whomever, and no PEER_DOWN */
	int down;   /* why, once PEER_DOWN has been polled; else 0 */
	/* A hint: where the next message to it will be written, most likely;
	 * NULL: nowhere that a CPU writes to. */
	const void *next_send;
};

/* --- operations ---------------------------------------------------------- */

enum pn_op_kind {
	PN_OP_SEND,
	PN_OP_WRITE,
	PN_OP_READ,
	/* Atomics work on 8 aligned bytes at remote_addr; the old value lands
	 * in the one segment of 8 bytes. Atomic towards other operations of
	 * devices on that memory, not towards the target's CPU. */
	PN_OP_FETCH_ADD,
	PN_OP_SWAP,
	PN_OP_COMPARE_SWAP,
};

enum pn_op_flag {
	PN_OP_INLINE = 1 << 0, /* SEND, WRITE: take the bytes now, no key */
	PN_OP_IMM = 1 << 1,    /* WRITE: an IMM completion at the target */
	PN_OP_SILENT = 1 << 2, /* no completion if it succeeds */
	PN_OP_FENCE = 1 << 3,
};

struct pn_sge {
	void *addr;
	size_t len;
	uint64_t lkey;
};

struct pn_op {
	enum pn_op_kind kind;
	unsigned flags;
	const struct pn_sge
		*sge; /* NULL with nsge 0; read during post() only */
	unsigned nsge;
	uint32_t imm; /* SEND: delivered with the message; WRITE: with _IMM */
	uint64_t remote_addr; /* WRITE, READ, atomics */
	uint64_t rkey;
	uint64_t operand; /* ADD: addend; SWAP, COMPARE_SWAP: new value */
	uint64_t compare; /* COMPARE_SWAP */
	void *user;	  /* comes back in the completion */
};

/* What an atomic operation leaves behind where `old` was. */
static inline uint64_t pn_op_atomic_result(const struct pn_op *op, uint64_t old)
{
	switch (op->kind) {
	case PN_OP_FETCH_ADD:
		return old + op->operand;
	case PN_OP_COMPARE_SWAP:
		return old == op->compare ? op->operand : old;
	default:
		return op->operand;
	}
}

/* A message, a write or a read of 0 bytes is fine; it touches no memory, and
 * whether its keys are looked at is the device's choice. */

enum pn_completion_kind {
	PN_COMPLETION_OP,	 /* an operation ended: user, status */
	PN_COMPLETION_RECV,	 /* a message: data, len, imm; to be released */
	PN_COMPLETION_IMM,	 /* a peer's write with PN_OP_IMM: imm, len */
	PN_COMPLETION_PEER_UP,	 /* operations can be posted */
	PN_COMPLETION_PEER_DOWN, /* status says why; nothing follows */
};

/* What a message that is sent inline begins with: of one length, so that it is
 * copied without a loop. */
struct pn_inline_header {
	uint64_t words[5];
};

struct pn_completion {
	enum pn_completion_kind kind;
	int status; /* 0 or negative errno */
	struct pn_peer *peer;
	void *user;
	const void *data;
	size_t len;
	uint32_t imm;
	void *lease; /* RECV: the device's own, for return_buffer */
};

/* Who takes messages where they lie, instead of having them lent. Only poll()
 * of a single_threaded device asks, and as long as it has lent nothing, so that
 * messages keep their order; a device need not ask. */
struct pn_receive_handler {
	/* False: nothing was done, the message is lent as others are. */
	bool (*take)(struct pn_receive_handler *receive_handler,
		     struct pn_peer *peer, const void *data, size_t len);
};

/* --- the operations every device fulfils --------------------------------- */

struct pn_device_attr {
	bool single_threaded;
	struct pn_pages_policy pages; /* for memory the device maps itself */
};

/* One fact about an opened device, for `pinion info`. */
typedef void pn_fact_fn(void *arg, const char *name, const char *text);

struct pn_device_ops {
	const char *kind;		/* "soft" */
	const char *help;		/* one line */
	const struct pn_option *params; /* of the spec; may be NULL */
	size_t nparams;

	/* params: what follows the ':' of the spec ("" when nothing does). */
	int (*open)(const char *params, const struct pn_device_attr *attr,
		    struct pn_device **out);
	/* See pn_device_open_shared(). NULL: not offered. */
	int (*open_shared)(struct pn_device *device,
			   const struct pn_device_attr *attr,
			   struct pn_device **out);
	void (*close)(struct pn_device *device);
	void (*describe)(struct pn_device *device, pn_fact_fn *fn, void *arg);

	int (*reg)(struct pn_device *device, struct pn_mr *const *mrs,
		   unsigned n);
	void (*dereg)(struct pn_device *device, struct pn_mr *const *mrs,
		      unsigned n);
	/* After reg() or dereg(): whether mr is registered still or again,
	 * though it should not be. NULL: that cannot happen. */
	bool (*stays)(const struct pn_mr *mr);
	int (*rekey)(struct pn_device *device, struct pn_mr *mr);
	void (*pinned)(struct pn_device *device, struct pn_pinned *out);

	void (*address)(struct pn_device *device, struct pn_address *out);
	int (*attach)(struct pn_device *device,
		      const struct pn_address *address, struct pn_peer **out);

	/* NULL: not offered. */
	void (*detach)(struct pn_device *device, struct pn_peer *peer);
	/* Further ports that came with the one opened, from 1 on; NULL: the
	 * device has one. */
	struct pn_device *(*port)(struct pn_device *device, unsigned index);

	int (*post)(struct pn_device *device, struct pn_peer *peer,
		    const struct pn_op *op);
	/* NULL: by post(). */
	int (*send_inline)(struct pn_device *device, struct pn_peer *peer,
			   const struct pn_inline_header *head,
			   const void *body, size_t len);
	int (*poll)(struct pn_device *device, struct pn_completion *out,
		    unsigned max);
	void (*return_buffer)(struct pn_device *device,
			      const struct pn_completion *completion);
	int (*wait)(struct pn_device *device, uint64_t deadline_ns);
	/* For several devices of this kind; NULL: by fd() and arm(). */
	int (*wait_any)(struct pn_device *const *devices, unsigned n,
			uint64_t deadline_ns);
	void (*wake)(struct pn_device *device);
	int (*fd)(struct pn_device *device);
	int (*arm)(struct pn_device *device);

	uint64_t (*now)(struct pn_device *device);
	void (*copy)(struct pn_device *device, void *dst, const void *src,
		     size_t len);
	void (*consume_cpu)(struct pn_device *device, uint64_t ns);
	/* NULL: the kernel's futex. */
	void (*block)(struct pn_device *device, _Atomic uint32_t *word,
		      uint32_t value, uint64_t deadline_ns);
	void (*unblock)(struct pn_device *device, _Atomic uint32_t *word);
};

/* What every device struct begins with; filled by its open(). */
struct pn_device {
	const struct pn_device_ops *ops;
	unsigned caps; /* enum pn_capability */
	struct pn_device_limits limits;
	struct pn_costs costs; /* see measure.h; zero until measured */
	const char *profile;   /* cost profile in force; "none" */
	bool emulated;	       /* a declared cost is added to the real one */
	/* Callers promise one data call (post, poll, wait, ...) at a time.
	 * From the attribute; may be changed while there is none. */
	bool single_threaded;
	struct pn_receive_handler
		*receive_handler; /* of messages without immediate; or NULL */
	/* What the kernel charges for registrations is held below its limit, by
	 * devices for which it charges more than their pages. NULL: no limit.
	 * May be changed while nothing is being registered. */
	struct pn_account *account;
};

/* --- calling a device ---------------------------------------------------- */

/* The kinds of device built in, one by one; NULL at the end. */
const struct pn_device_ops *pn_device_kind(unsigned index);

/* Opens the device that spec names: KIND or KIND:PARAMETERS. attr may be NULL.
 * May sleep. -EINVAL: the spec does not parse or a value is out of range
 * (logged, with what would do); -ENODEV: no such kind or adapter; -EACCES,
 * -EPERM, -ENOMEM, -EOPNOTSUPP: the system refuses (logged, with what to do).
 */
int pn_device_open(const char *spec, const struct pn_device_attr *attr,
		   struct pn_device **out);

/* Opens another device on the same adapter that shares the domain of `device`:
 * registering with either is registering with both, and only `device` has an
 * account and counts in a budget. The new one has the costs of `device`, an
 * address of its own, and shares no lock with it while bytes move. Close it
 * before `device`. -EOPNOTSUPP: not offered; others as above. */
int pn_device_open_shared(struct pn_device *device,
			  const struct pn_device_attr *attr,
			  struct pn_device **out);

/* Opens all the devices (rails) that spec names, at most PN_RAILS_MAX: specs
 * joined by '+' or '/', each with all of its ports (`sim:rails=2`). Errors as
 * above; -EINVAL also for too many, for both in one spec, and for devices that
 * cannot be waited for together (virtual and real time). Close the last first.
 */
int pn_device_open_rails(const char *spec, const struct pn_device_attr *attr,
			 struct pn_device **out, unsigned *n);

/* Whether the devices that spec names are joined by '/': a peer is reached over
 * one of them, the first that can, where '+' means over all. */
bool pn_device_spec_is_alternatives(const char *spec);

/* NULL is fine. */
void pn_device_close(struct pn_device *device);

/* Whether a range could be registered as far as its numbers go: 0 or -EINVAL.
 */
int pn_device_check_mr(const struct pn_device *device, const struct pn_mr *mr);

/* Registers n ranges (addr, len, access of each set by the caller) in one
 * batch: all or none. Slow; call it under no lock that others need.
 * -EINVAL: a length of 0, over the limit or wrapping around, unknown access
 * bits; -EFAULT: not mapped, or mapped in a way this device cannot pin
 * (read-only without PN_CAP_READ_ONLY; disk files on `soft`); -ENOMEM: the
 * system's or the device's limit is reached. */
int pn_device_register(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n);

/* Ends n registrations; from the return on their keys are refused. An
 * operation in flight on one of them either completes as if nothing had
 * happened or with -EFAULT or -EACCES. Cannot fail, except as
 * pn_device_still_registered() says. Slow, as above. */
static inline void pn_device_deregister(struct pn_device *device,
					struct pn_mr *const *mrs, unsigned n)
{
	PN_NO_CANCEL();
	device->ops->dereg(device, mrs, n);
}

/* Whether mr could not be deregistered: after pn_device_deregister(), or after
 * a pn_device_register() that failed and could not undo all of its batch. Keep
 * *mr as it is and deregister it later. */
static inline bool pn_device_still_registered(const struct pn_device *device,
					      const struct pn_mr *mr)
{
	return device->ops->stays && device->ops->stays(mr);
}

/* Gives mr a new rkey; the old one is refused from the return on, while the
 * pages stay pinned. -EOPNOTSUPP: not offered (PN_CAP_REKEY). */
static inline int pn_device_rekey(struct pn_device *device, struct pn_mr *mr)
{
	PN_NO_CANCEL();
	return device->ops->rekey(device, mr);
}

static inline void pn_device_pinned(struct pn_device *device,
				    struct pn_pinned *out)
{
	PN_NO_CANCEL();
	device->ops->pinned(device, out);
}

static inline void pn_device_address(struct pn_device *device,
				     struct pn_address *out)
{
	device->ops->address(device, out);
}

/* The peer at address, the same pointer each time until it is down; then, with
 * PN_CAP_ATTACH_AGAIN, a new one. The device's own address gives a loopback
 * peer. Returns at once: PEER_UP or PEER_DOWN follows (only once for each peer,
 * whoever attached first). -EHOSTUNREACH: this device cannot reach that one
 * from here; -EINVAL: the blob is no address of this kind
 * and version of device; -ENOMEM. */
static inline int pn_device_attach(struct pn_device *device,
				   const struct pn_address *address,
				   struct pn_peer **out)
{
	PN_NO_CANCEL();
	return device->ops->attach(device, address, out);
}

/* Ends a way for good, as if the peer had died: what is in flight completes
 * with -ECONNRESET, and PEER_DOWN follows, here and soon there. Behind it none
 * of the peer's operations touches memory any more. -EOPNOTSUPP: not offered.
 */
static inline int pn_device_detach(struct pn_device *device,
				   struct pn_peer *peer)
{
	if (!device->ops->detach)
		return -EOPNOTSUPP;
	PN_NO_CANCEL();
	device->ops->detach(device, peer);
	return 0;
}

/* Posts one operation. Never sleeps; may carry it out at once. */
static inline int pn_device_post(struct pn_device *device, struct pn_peer *peer,
				 const struct pn_op *op)
{
	return device->ops->post(device, peer, op);
}

/* Posts a send of head and body that is INLINE and SILENT, as most small
 * messages are: they need no operation to be written down. */
int pn_device_post_inline(struct pn_device *device, struct pn_peer *peer,
			  const struct pn_inline_header *head, const void *body,
			  size_t len);

static inline int pn_device_send_inline(struct pn_device *device,
					struct pn_peer *peer,
					const struct pn_inline_header *head,
					const void *body, size_t len)
{
	return pn_likely(device->ops->send_inline)
		       ? device->ops->send_inline(device, peer, head, body, len)
		       : pn_device_post_inline(device, peer, head, body, len);
}

static inline void pn_peer_update_state(const struct pn_completion *c)
{
	c->peer->up = c->kind == PN_COMPLETION_PEER_UP;
	if (!c->peer->up)
		c->peer->down = c->status ? c->status : -ECONNRESET;
}

/* Takes up to max completions, at least 1; returns how many, not counting what
 * the receive_handler took. Also makes progress. */
static inline int pn_device_poll(struct pn_device *device,
				 struct pn_completion *out, unsigned max)
{
	int n;

	/* A device may have to write the first before it knows better. */
	pn_assert(max);
	n = device->ops->poll(device, out, max);
	for (int i = 0; i < n; i++)
		if (pn_unlikely(out[i].kind >= PN_COMPLETION_PEER_UP))
			pn_peer_update_state(&out[i]);
	return n;
}

/* Gives a RECV's memory back. */
static inline void pn_device_return_buffer(
	struct pn_device *device, const struct pn_completion *completion)
{
	device->ops->return_buffer(device, completion);
}

#define PN_FOREVER UINT64_MAX

/* Sleeps until poll() would return something, a post() refused with -EAGAIN
 * might succeed, wake() is called or now() is deadline_ns. Spins briefly
 * first; then costs no CPU. 0 (look again: there may be nothing), or
 * -ETIMEDOUT. On
 * `sim`, -EDEADLK: nothing can ever happen again. A cancellation point, but on
 * `sim`: a device holds nothing while it sleeps. */
static inline int pn_device_wait(struct pn_device *device, uint64_t deadline_ns)
{
	return device->ops->wait(device, deadline_ns);
}

/* What PEER_DOWN says of a connection that could not be made, or has ended, for
 * this reason of the system's: one of the errors above, -EHOSTUNREACH, -EMFILE,
 * -ENOMEM or -EPROTO. So that programs know what requests end with. */
int pn_device_connection_error(int error);

/* The same for several devices at once, which all run in virtual time or all
 * have PN_CAP_FD. wake() of the first ends it. */
int pn_device_wait_any(struct pn_device *const *devices, unsigned n,
		       uint64_t deadline_ns);

/* For devices' own wait(): sleeps until fd is readable, or for a signal. False:
 * the deadline has come. */
bool pn_device_sleep_on(int fd, uint64_t deadline_ns);

/* Makes a wait() in another thread, now or the next one, return 0. */
static inline void pn_device_wake(struct pn_device *device)
{
	device->ops->wake(device);
}

/* A descriptor that becomes readable after arm() when poll() has something;
 * it belongs to the device and is only to be polled. -EOPNOTSUPP without
 * PN_CAP_FD. */
static inline int pn_device_fd(struct pn_device *device)
{
	return device->ops->fd(device);
}

/* 0: armed, the descriptor will tell; -EAGAIN: there is something already,
 * poll() first. */
static inline int pn_device_arm(struct pn_device *device)
{
	return device->ops->arm(device);
}

static inline uint64_t pn_device_now(struct pn_device *device)
{
	return device->ops->now(device);
}

/* Copies and, in virtual time, charges for it. Engine code copies payload
 * only through this. The ranges do not overlap. */
static inline void pn_copy(struct pn_device *device, void *dst, const void *src,
			   size_t len)
{
	if (pn_unlikely(device->ops->copy))
		device->ops->copy(device, dst, src, len);
	else
		memcpy(dst, src, len);
}

/* What became of memory that could not be registered because of `why`: 0, it
 * can be copied (read, or with `write` written) all the same, as read-only
 * memory can on `soft`; -EFAULT: not even that. In virtual time nobody looks.
 */
static inline int pn_copy_check(const struct pn_device *device, int why,
				const void *addr, size_t len, bool write)
{
	return why == -EFAULT && !device->ops->copy
		       ? pn_pages_check(addr, len, write)
		       : 0;
}

/* Sleeps while *word is value and now() is before deadline_ns; may return
 * early, so look again. This is how one thread waits for another (not for the
 * device): in virtual time both are tasks. Holds no lock, like wait(). */
void pn_device_block_until(struct pn_device *device, _Atomic uint32_t *word,
			   uint32_t value, uint64_t deadline_ns);

/* The same, for as long as it takes. */
static inline void pn_device_block(struct pn_device *device,
				   _Atomic uint32_t *word, uint32_t value)
{
	pn_device_block_until(device, word, value, PN_FOREVER);
}

/* As pn_device_block_until(), and a cancellation point (base/cancel.h) where
 * time is real. */
void pn_device_block_cancelable(struct pn_device *device,
				_Atomic uint32_t *word, uint32_t value,
				uint64_t deadline_ns);

/* Wakes all that sleep on word, after it was changed. */
void pn_device_unblock(struct pn_device *device, _Atomic uint32_t *word);

/* Charges this thread ns of CPU time in virtual time; elsewhere nothing, as
 * the real work takes its real time. */
static inline void pn_device_consume_cpu(struct pn_device *device, uint64_t ns)
{
	if (pn_unlikely(device->ops->consume_cpu))
		device->ops->consume_cpu(device, ns);
}

#endif
