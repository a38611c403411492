/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device -- the interface of a device: a thing that needs memory registered and
 * moves bytes. Kinds: an RDMA adapter (`verbs`), a provider of libfabric
 * (`fabric`), a software adapter (`soft`), a simulated adapter (`sim`), the
 * copy engine of a GPU (`cuda`). The layers above (cache, heap, helper,
 * message) use only this interface. Calls from a device up into the message
 * layer go through one interface: receive_handler.h.
 *
 * Nouns
 *   device        one adapter port opened by one process (on `sim`: one node).
 *   registration  a byte range that the device may access: struct pn_mr, whose
 *                 storage belongs to the caller. Its pages stay pinned until it
 *                 is deregistered, whatever the program does to its mappings.
 *   key           a number that names a registration in operations: `lkey` in
 *                 the owner's own segments, `rkey` in operations of its peers.
 *                 0 is never a key (except on a registrar, whose keys are the
 *                 user's). A key of a deregistered range does not become the
 *                 key of another registration within any practical time.
 *   domain        the registrations of a device (the protection domain of
 *                 verbs). A device can be opened to share the domain of
 *                 another (pn_device_open_shared()): it has peers, operations
 *                 and completions of its own, and both accept the keys of
 *                 either.
 *   peer          the connection to one other device (or to the device
 *                 itself).
 *   operation     a send, write, read or atomic posted to a peer.
 *   completion    an event that poll() returns: an operation ended, a message
 *                 arrived, a peer came up or went down.
 *
 * Life
 *   open -> address/attach -> register -> post, poll, wait -> deregister ->
 *   close. close() ends everything that is left: operations in flight are
 *   abandoned, registrations end, peers see the device go down.
 *   A peer is created by attach(), or when the other side attaches to us (the
 *   completion PEER_UP then brings it). It lives until close(), also when it is
 *   down: pointers to it stay valid. A peer that is down never comes up again;
 *   with PN_CAP_ATTACH_AGAIN the device at its address can be attached again,
 *   which creates another peer.
 *
 * Order
 *   Sends and writes posted to one peer take effect there in the order of
 *   posting: whoever sees a send (or a write's immediate) sees the bytes of
 *   the writes posted before it. Reads and atomics begin in order; their data
 *   is there when they complete. An operation with PN_OP_FENCE begins after
 *   all earlier reads and atomics to that peer have completed. Operations on
 *   one peer complete in the order of posting. Different peers: no order.
 *
 * Delivery
 *   A send, or a write with PN_OP_IMM, that completed with 0 will be polled at
 *   its target, even if the peer goes down there first: PEER_DOWN comes last,
 *   after everything that arrived and after the completions of everything
 *   that was posted. An operation that completed with -ECONNRESET may have
 *   arrived, too.
 *
 * Buffers
 *   A segment must stay registered and its bytes must not be modified (for a
 *   read: not be read) until the completion. With PN_OP_INLINE the device
 *   copies the bytes before post() returns, and they need no key.
 *   Sends arrive in memory of the receiving device: callers post no receives. A
 *   RECV completion lends `data` to the caller until
 *   pn_device_return_buffer(). Return the oldest first: senders stall when the
 *   receiver's memory is full.
 *
 * Threads
 *   register, deregister, rekey, pinned, now, copy, consume_cpu, wake, block,
 *   unblock: any thread, concurrently.
 *   All others: any thread. Callers serialise them when the device was opened
 *   single_threaded; the device then takes no lock. Otherwise poll and wait may
 *   run in one thread while others post.
 *   Callers hold no lock across wait, block, register, deregister, copy and
 *   consume_cpu: in virtual time these let other tasks of the same thread run.
 *
 * Errors
 *   0 or a negative errno. A call that fails has changed nothing. Parameters
 *   that break the contract (NULL where not allowed) are bugs: the device may
 *   assert. What comes from users or peers (addresses, lengths, keys, blobs)
 *   is checked and refused. An error in an operation is returned by post() or
 *   by its completion, whichever finds it. In both:
 *     -EINVAL        malformed operation, too many segments, too long
 *     -EAGAIN        post: queue full or peer still connecting: poll, retry
 *     -ENOMEM        post: no memory, and no operation in flight whose end
 *                    would say when to retry
 *     -EFAULT        a local segment is not covered by its lkey
 *     -EACCES        the remote side refused: key unknown or no longer valid,
 *                    range not covered, access not granted
 *     -ECONNREFUSED  the peer refused the connection: another user, another
 *                    version
 *     -ECONNRESET    the peer is gone; every operation still posted to it
 *                    completes with this error within 1 s of its death. post()
 *                    may return it before PEER_DOWN was polled. Attaching to an
 *                    address where no device is ends in PEER_DOWN with it
 *     -ENODEV        `sim` only: the device's own node is gone
 *     -ECANCELED     an operation posted before this one to the same peer was
 *                    refused (-EACCES) and the device had to reconnect. iWARP
 *                    does not report which operation was refused: of several
 *                    in flight, the oldest write or read gets the -EACCES
 *     -ESTALE        `sim` only: the program released the pages behind a key;
 *                    on real devices these bytes are lost silently
 *   A refused operation leaves its peer usable.
 *
 * Time
 *   All times are nanoseconds of the device's own clock (now()).
 *
 * Caveat: a device belongs to the process that opened it; after fork() the
 * child must not use it.
 */
#ifndef PN_DEVICE_DEVICE_H
#define PN_DEVICE_DEVICE_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pinion/device.h>

#include "base/cancel.h"
#include "base/compiler.h"
#include "base/pages.h"
#include "config/option.h"
#include "device/receive_handler.h"

struct pn_account;
struct pn_device;
struct pn_device_ops;

/* --- capabilities, limits and costs -------------------------------------- */

enum pn_capability {
	PN_CAP_GATHER = 1 << 0,	   /* more than one segment per operation */
	PN_CAP_WRITE_IMM = 1 << 1, /* a write can notify the target */
	PN_CAP_ATOMICS = 1 << 2,
	PN_CAP_FAST_REGISTER = 1 << 3, /* slots allocated in advance */
	PN_CAP_READ_ONLY = 1 << 4, /* can register memory mapped PROT_READ */
	PN_CAP_RELAXED = 1 << 5,   /* relaxed ordering has an effect */
	PN_CAP_PINS =
		1 << 6, /* pages are really pinned: a stale key accesses them */
	PN_CAP_REKEY = 1 << 7, /* rekey() works */
	PN_CAP_FD = 1 << 8,    /* fd() and arm() work */
	PN_CAP_VIRTUAL_TIME = 1 << 9,
	/* Sends are writes into a ring in the receiver's memory, which the
	 * receiver polls. Without this bit, sends match receives that the
	 * device has posted. */
	PN_CAP_RING = 1 << 10,
	PN_CAP_ATTACH_AGAIN =
		1 << 11, /* attach() works again after a peer went down */
	PN_CAP_UNPINNED = 1 << 12, /* accepts PN_ACCESS_UNPINNED */
	/* The device's users cannot handle a pin of several segments: a pin has
	 * one registration, and one with remote access covers exactly the bytes
	 * asked for. */
	PN_CAP_ONE_SEGMENT = 1 << 13,
	/* Registrations are found by address, in operations of everybody in the
	 * process, not by a key: what is registered affects code that knows
	 * nothing of pinion, and a range is registered once. A deregistration
	 * that is due must not wait (doc/design/cuda.md). */
	PN_CAP_BY_ADDRESS = 1 << 14,
};

/* SIZE_MAX: no limit is known. */
struct pn_device_limits {
	size_t max_mr_bytes; /* in one registration */
	size_t max_mrs;	     /* registrations that exist at one time */
	/* bytes that the system lets this process pin */
	size_t max_pinned_bytes;
	/* max_pinned_bytes is for all processes of the user */
	bool pinned_by_user;
	bool deferred_uncharge; /* the kernel counts pages for a while after */
	size_t max_send_bytes;	/* in one send */
	size_t max_op_bytes;	/* in one write or read */
	size_t inline_bytes;	/* with PN_OP_INLINE; 0: not offered */
	unsigned max_sge;	/* segments per operation */
	unsigned queue_depth;	/* operations in flight per peer */
};

/* Costs, for choosing between protocols and policies. A cost that depends on
 * the length is fixed + per_page * (4 KiB pages). */
struct pn_costs {
	double register_ns, register_page_ns;
	double deregister_ns, deregister_page_ns;
	double copy_byte_ns;	    /* pn_copy() of warm memory */
	double put_ns, put_byte_ns; /* one write, post to completion */
	double get_ns, get_byte_ns;
	double send_ns; /* the smallest send, post to arrival */
	/* one look-up of a buffer (message/protocol/reuse.h); only in virtual
	 * time */
	double lookup_ns;
	/* part of put_ns that passes after the bytes have arrived */
	double ack_ns;
	/* Writes and reads longer than handoff_bytes are handed to another
	 * thread inside the device, which takes handoff_ns more. The device
	 * sets handoff_bytes and cpu_moves; they are not measured. */
	size_t handoff_bytes;
	double handoff_ns;
	bool cpu_moves; /* a CPU of the host moves the bytes */
	bool emulated;	/* declared by a profile, not all measured */
};

/* Reads one of a device's costs, which may be updated while the device is used.
 */
static inline double pn_cost(const double *cost)
{
	double value;

	__atomic_load(cost, &value, __ATOMIC_RELAXED);
	return value;
}

/* --- registrations ------------------------------------------------------- */

/* May be set beside PINION_ACCESS_* bits without remote access: the memory
 * belongs to pinion, stays mapped and need not be pinned. For devices whose CPU
 * moves the bytes. Such a registration is made alone, not in a batch. */
#define PN_ACCESS_UNPINNED (1u << 31)

/* May be set on a device with PN_CAP_BY_ADDRESS: the memory belongs to pinion
 * and stays mapped while it is registered. */
#define PN_ACCESS_OWN (1u << 30)

/* What peers may do. */
#define PN_ACCESS_REMOTE                                          \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)

/* access is a set of PINION_ACCESS_* bits. The storage belongs to the caller,
 * the fields to the device once registered. At rest addr and len are as given:
 * a device pins whole pages but grants only the bytes asked for. */
struct pn_mr {
	void *addr;
	size_t len;
	unsigned access;
	unsigned device_slot; /* private to the device */
	uint64_t lkey;
	uint64_t rkey; /* 0 when access grants nothing to peers */
	void *handle;  /* for the user, on a registrar; else NULL */
};

struct pn_pinned {
	size_t live_bytes;     /* pages of live registrations */
	size_t deferred_bytes; /* deregistered, but still charged by the kernel
				*/
	size_t mrs;	       /* live registrations */
	size_t device_bytes; /* pinned by the device for itself (rings, ...) */
};

/* --- peers --------------------------------------------------------------- */

#define PN_ADDRESS_BYTES 128

/* The largest number of devices (rails) of one endpoint. */
#define PN_RAILS_MAX 4

/* Names a device for attach(). Programs exchange addresses as they like. It
 * starts with a version and the kind of device; the rest is private to the
 * device. */
struct pn_address {
	uint32_t len; /* bytes used of data */
	uint8_t data[PN_ADDRESS_BYTES];
};

struct pn_peer {
	struct pn_device *device;
	struct pn_address address;
	void *user; /* belongs to the layer above; NULL at first */
	bool up;    /* PEER_UP has been polled and PEER_DOWN has not */
	int down;   /* the status of PEER_DOWN once that was polled; else 0 */
	/* A hint: the address where the next message to this peer will most
	 * likely be written; NULL: no CPU writes it. */
	const void *next_send;
};

/* --- operations ---------------------------------------------------------- */

enum pn_op_kind {
	PN_OP_SEND,
	PN_OP_WRITE,
	PN_OP_READ,
	/* Atomics work on 8 aligned bytes at remote_addr; the old value goes to
	 * the one segment of 8 bytes. They are atomic with respect to other
	 * device operations on that memory, not to the target's CPU. */
	PN_OP_FETCH_ADD,
	PN_OP_SWAP,
	PN_OP_COMPARE_SWAP,
};

enum pn_op_flag {
	PN_OP_INLINE =
		1 << 0,	    /* SEND, WRITE: copy the bytes in post(), no key */
	PN_OP_IMM = 1 << 1, /* WRITE: an IMM completion at the target */
	PN_OP_SILENT = 1 << 2, /* no completion if it succeeds */
	PN_OP_FENCE = 1 << 3,
};

struct pn_sge {
	void *addr;
	size_t len;
	uint64_t lkey;
};

/* A send, a write or a read of 0 bytes is valid. It accesses no memory; the
 * device may or may not check its keys. */
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

/* The value that an atomic operation stores where `old` was. */
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

/* What happened. Behind each kind: the fields of struct pn_completion that are
 * set, besides the peer. */

enum pn_completion_kind {
	PN_COMPLETION_OP,   /* an operation ended: user, status */
	PN_COMPLETION_RECV, /* a message: data, len, imm; return its buffer */
	PN_COMPLETION_IMM,  /* a peer's write with PN_OP_IMM: imm, len */
	PN_COMPLETION_PEER_UP, /* operations can be posted */
	/* status is the reason; no completion follows */
	PN_COMPLETION_PEER_DOWN,
};

/* The first bytes of a message that is sent inline. The length is constant, so
 * that the header is copied without a loop. */
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
	void *lease; /* RECV: private to the device, for return_buffer() */
};

/* --- the operations of a device ------------------------------------------ */

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
	/* Lists what a spec of this kind can name here: the name is a spec, the
	 * text says what it is, or why it cannot be used. NULL: nothing. */
	void (*list)(pn_fact_fn *fn, void *arg);

	/* params: the text after the ':' of the spec ("" if there is none). */
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
	/* After reg() or dereg(): whether mr is still registered, or registered
	 * again, although it should not be. NULL: that cannot happen. */
	bool (*still_registered)(const struct pn_mr *mr);
	int (*rekey)(struct pn_device *device, struct pn_mr *mr);
	/* See pn_device_released(). NULL: does not matter to this kind. */
	void (*released)(struct pn_device *device, uintptr_t addr, size_t len);
	/* See pn_device_holds(). NULL: never. */
	bool (*holds)(struct pn_device *device, uintptr_t addr, size_t len);
	void (*pinned)(struct pn_device *device, struct pn_pinned *out);

	void (*address)(struct pn_device *device, struct pn_address *out);
	int (*attach)(struct pn_device *device,
		      const struct pn_address *address, struct pn_peer **out);

	/* NULL: not offered. */
	void (*detach)(struct pn_device *device, struct pn_peer *peer);
	/* Returns further ports that were opened together with this one, from
	 * index 1 on. NULL: the device has one port. */
	struct pn_device *(*port)(struct pn_device *device, unsigned index);

	int (*post)(struct pn_device *device, struct pn_peer *peer,
		    const struct pn_op *op);
	/* NULL: pn_device_post_inline() is used. */
	int (*send_inline)(struct pn_device *device, struct pn_peer *peer,
			   const struct pn_inline_header *header,
			   const void *body, size_t len);
	int (*poll)(struct pn_device *device, struct pn_completion *out,
		    unsigned max);
	void (*return_buffer)(struct pn_device *device,
			      const struct pn_completion *completion);
	/* See pn_device_idle(). NULL: nothing is done. */
	unsigned (*idle)(struct pn_device *device);
	int (*wait)(struct pn_device *device, uint64_t deadline_ns);
	/* Waits for several devices of this kind. NULL: fd() and arm() are
	 * used. */
	int (*wait_any)(struct pn_device *const *devices, unsigned n,
			uint64_t deadline_ns);
	void (*wake)(struct pn_device *device);
	int (*fd)(struct pn_device *device);
	int (*arm)(struct pn_device *device);

	/* Memory of the device's own peer that measurements may write, and its
	 * key; scratch_free() ends it. NULL: registered memory of the host. */
	int (*scratch)(struct pn_device *device, size_t bytes, uint64_t *addr,
		       uint64_t *rkey);
	void (*scratch_free)(struct pn_device *device, uint64_t addr);

	uint64_t (*now)(struct pn_device *device);
	void (*copy)(struct pn_device *device, void *dst, const void *src,
		     size_t len);
	void (*consume_cpu)(struct pn_device *device, uint64_t ns);
	/* NULL: the kernel's futex is used. */
	void (*block)(struct pn_device *device, _Atomic uint32_t *word,
		      uint32_t value, uint64_t deadline_ns);
	void (*unblock)(struct pn_device *device, _Atomic uint32_t *word);
};

/* What is to be done when a device has closed, see pn_device_add_cleanup().
 * Storage of the caller, in the device's list until then. */
struct pn_device_cleanup {
	struct pn_device_cleanup *next;
	void (*fn)(struct pn_device_cleanup *cleanup);
};

/* Every device struct begins with this; its open() fills it. */
struct pn_device {
	const struct pn_device_ops *ops;
	unsigned caps; /* enum pn_capability */
	struct pn_device_limits limits;
	struct pn_costs costs; /* see measure.h; zero until measured */
	const char *profile;   /* cost profile in force; "none" */
	bool emulated;	       /* a declared cost is added to the real one */
	/* Callers make one data call (post, poll, wait, ...) at a time. Set
	 * from the attribute; may be changed while no call is in progress. */
	bool single_threaded;
	/* How often a single thread that waits for an answer polls before it
	 * calls wait(); 0: the default. */
	unsigned polls_before_wait;
	/* With PN_CAP_BY_ADDRESS: only pinion uses the registrations, and the
	 * device may divide them. Set by the user before the first one. */
	bool divides;
	/* for messages without immediate; or NULL. Set by the user. */
	struct pn_receive_handler *receive_handler;
	/* Devices for which the kernel charges more than the pages of their
	 * registrations keep these charges below the account's limit. NULL: no
	 * limit. May be changed while nothing is being registered. */
	struct pn_account *account;
	struct pn_device_cleanup *cleanups; /* pn_device_add_cleanup() */
};

/* --- calling a device ---------------------------------------------------- */

/* The kinds of device that are built in, by index; NULL at the end. */
const struct pn_device_ops *pn_device_kind(unsigned index);

/* Opens the device that spec names: KIND or KIND:PARAMETERS. attr may be NULL.
 * May sleep. -EINVAL: the spec does not parse or a value is out of range
 * (logged, with valid values); -ENODEV: no such kind or adapter; -EACCES,
 * -EPERM, -ENOMEM, -EOPNOTSUPP: the system refuses (logged, with what to do).
 */
int pn_device_open(const char *spec, const struct pn_device_attr *attr,
		   struct pn_device **out);

/* Opens another device on the same adapter that shares the domain of `device`:
 * a registration with either is a registration with both, and only `device` has
 * an account and counts in a budget. The new device has the costs of `device`,
 * an address of its own, and shares no lock with `device` while bytes move.
 * Close it before `device`. -EOPNOTSUPP: not offered; other errors as above. */
int pn_device_open_shared(struct pn_device *device,
			  const struct pn_device_attr *attr,
			  struct pn_device **out);

/* Opens all devices (rails) that spec names, at most PN_RAILS_MAX: specs joined
 * by '+' or '/', each with all of its ports (`sim:rails=2`). Errors as above;
 * -EINVAL also for too many devices, for both separators in one spec, and for
 * devices that cannot be waited for together (virtual and real time). Close the
 * last first. */
int pn_device_open_rails(const char *spec, const struct pn_device_attr *attr,
			 struct pn_device **out, unsigned *n);

/* Whether '/' joins the devices of spec: then a peer is reached over the first
 * of them that can reach it. With '+' it is reached over all of them. */
bool pn_device_spec_is_alternatives(const char *spec);

/* device may be NULL. */
void pn_device_close(struct pn_device *device);

/* Calls cleanup->fn when the device has closed: then none of its operations is
 * executed or completed any more. For memory that operations use though nobody
 * waits for them. Not while another thread calls the device. */
void pn_device_add_cleanup(struct pn_device *device,
			   struct pn_device_cleanup *cleanup);
void pn_device_remove_cleanup(struct pn_device *device,
			      struct pn_device_cleanup *cleanup);

/* Whether a device has messages: registrars and GPUs have none. */
static inline bool pn_device_has_messages(const struct pn_device *device)
{
	return device->limits.max_send_bytes;
}

/* Checks the address, length and access bits of a range: 0 or -EINVAL. */
int pn_device_check_mr(const struct pn_device *device, const struct pn_mr *mr);

/* Registers n ranges in one batch: all or none. The caller sets addr, len and
 * access of each. Slow: call it under no lock that others need. -EINVAL: a
 * length of 0, over the limit or wrapping around, unknown access bits; -EFAULT:
 * not mapped, or mapped in a way that this device cannot pin (read-only without
 * PN_CAP_READ_ONLY; disk files on `soft`); -ENOMEM: the limit of the system or
 * of the device is reached; -EBUSY, with PN_CAP_BY_ADDRESS alone: an older
 * registration of released memory, or a copy of the program, is in the way. */
int pn_device_register(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n);

/* Ends n registrations; their keys are refused from the return on. An operation
 * in flight on one of them completes either as if nothing had happened or with
 * -EFAULT or -EACCES. Cannot fail, except as pn_device_still_registered() says.
 * Slow, as above. */
static inline void pn_device_deregister(struct pn_device *device,
					struct pn_mr *const *mrs, unsigned n)
{
	PN_NO_CANCEL();
	device->ops->dereg(device, mrs, n);
}

/* Whether mr could not be deregistered: after pn_device_deregister(), or after
 * a pn_device_register() that failed and could not undo all of its batch. The
 * caller keeps *mr unchanged and deregisters it later. */
static inline bool pn_device_still_registered(const struct pn_device *device,
					      const struct pn_mr *mr)
{
	return device->ops->still_registered &&
	       device->ops->still_registered(mr);
}

/* Gives mr a new rkey; the old one is refused from the return on. The pages
 * stay pinned. -EOPNOTSUPP: not offered (PN_CAP_REKEY). */
static inline int pn_device_rekey(struct pn_device *device, struct pn_mr *mr)
{
	PN_NO_CANCEL();
	return device->ops->rekey(device, mr);
}

/* The program has released these pages, some of which may be registered and in
 * use. With PN_CAP_BY_ADDRESS nothing can be registered there before that has
 * been deregistered: register returns -EBUSY. Neither blocks nor calls the
 * system. */
static inline void pn_device_released(struct pn_device *device, uintptr_t addr,
				      size_t len)
{
	if (pn_unlikely(device->ops->released))
		device->ops->released(device, addr, len);
}

/* With PN_CAP_BY_ADDRESS: whether memory of the program in these pages is
 * registered, from before the device looks at the pages until it has forgotten
 * them, whatever the cache knows of it. Without it: false. Takes no lock,
 * allocates nothing and calls no system: it is asked inside free(). */
static inline bool pn_device_holds(struct pn_device *device, uintptr_t addr,
				   size_t len)
{
	return pn_unlikely(device->caps & PN_CAP_BY_ADDRESS) &&
	       device->ops->holds && device->ops->holds(device, addr, len);
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

/* Returns the peer at address: the same pointer each time until the peer is
 * down; then, with PN_CAP_ATTACH_AGAIN, a new peer. The device's own address
 * gives a loopback peer. Does not sleep: PEER_UP or PEER_DOWN follows (once for
 * each peer, whichever side attached first). -EHOSTUNREACH: this device cannot
 * reach that one; -EINVAL: the blob is no address of this kind and version of
 * device; -ENOMEM. */
static inline int pn_device_attach(struct pn_device *device,
				   const struct pn_address *address,
				   struct pn_peer **out)
{
	PN_NO_CANCEL();
	return device->ops->attach(device, address, out);
}

/* Ends the connection to a peer, as if the peer had died: operations in flight
 * complete with -ECONNRESET, and PEER_DOWN follows here, and soon at the peer.
 * After PEER_DOWN none of the peer's operations accesses memory of this device.
 * -EOPNOTSUPP: not offered. */
static inline int pn_device_detach(struct pn_device *device,
				   struct pn_peer *peer)
{
	if (!device->ops->detach)
		return -EOPNOTSUPP;
	PN_NO_CANCEL();
	device->ops->detach(device, peer);
	return 0;
}

/* Posts one operation. Never sleeps; may execute it before returning. */
static inline int pn_device_post(struct pn_device *device, struct pn_peer *peer,
				 const struct pn_op *op)
{
	return device->ops->post(device, peer, op);
}

/* Posts a send of header and body with PN_OP_INLINE and PN_OP_SILENT, as most
 * small messages are sent. A device that implements send_inline() needs no
 * struct pn_op for it. */
int pn_device_post_inline(struct pn_device *device, struct pn_peer *peer,
			  const struct pn_inline_header *header,
			  const void *body, size_t len);

static inline int pn_device_send_inline(struct pn_device *device,
					struct pn_peer *peer,
					const struct pn_inline_header *header,
					const void *body, size_t len)
{
	return pn_likely(device->ops->send_inline)
		       ? device->ops->send_inline(device, peer, header, body,
						  len)
		       : pn_device_post_inline(device, peer, header, body, len);
}

static inline void pn_peer_update_state(const struct pn_completion *c)
{
	c->peer->up = c->kind == PN_COMPLETION_PEER_UP;
	if (!c->peer->up)
		c->peer->down = c->status ? c->status : -ECONNRESET;
}

/* Returns up to max (at least 1) completions and their number, not counting
 * messages that the receive handler took. Also makes progress. */
static inline int pn_device_poll(struct pn_device *device,
				 struct pn_completion *out, unsigned max)
{
	int n;

	/* A device may write the first entry before it knows whether to return
	 * it. */
	pn_assert(max);
	n = device->ops->poll(device, out, max);
	for (int i = 0; i < n; i++)
		if (pn_unlikely(out[i].kind >= PN_COMPLETION_PEER_UP))
			pn_peer_update_state(&out[i]);
	return n;
}

/* Returns the buffer of a RECV completion to the device. */
static inline void pn_device_return_buffer(
	struct pn_device *device, const struct pn_completion *completion)
{
	device->ops->return_buffer(device, completion);
}

#define PN_FOREVER UINT64_MAX

/* Sleeps until poll() would return something, a post() refused with -EAGAIN
 * might succeed, wake() is called or now() is deadline_ns. Spins briefly first,
 * then uses no CPU. Returns 0 (poll again; there may be nothing) or -ETIMEDOUT.
 * On `sim` also -EDEADLK: nothing can ever happen again. A cancellation point,
 * except on `sim`: a device holds nothing while it sleeps. */
static inline int pn_device_wait(struct pn_device *device, uint64_t deadline_ns)
{
	return device->ops->wait(device, deadline_ns);
}

/* Maps an error of the system to the status of PEER_DOWN for a connection that
 * could not be made or has ended: one of the errors above, -EHOSTUNREACH,
 * -EMFILE, -ENOMEM or -EPROTO. This limits the errors with which requests can
 * end to documented ones. */
int pn_device_connection_error(int error);

/* Waits for several devices at once, which all run in virtual time or all have
 * PN_CAP_FD. wake() of the first ends the wait. */
int pn_device_wait_any(struct pn_device *const *devices, unsigned n,
		       uint64_t deadline_ns);

/* For the wait() of a device: sleeps until fd is readable or a signal comes.
 * False: the deadline has passed. */
bool pn_device_sleep_on(int fd, uint64_t deadline_ns);

/* Makes a wait() in another thread return 0: the current one or the next. */
static inline void pn_device_wake(struct pn_device *device)
{
	device->ops->wake(device);
}

/* A descriptor that becomes readable after arm() when poll() has something. It
 * belongs to the device and may only be polled. -EOPNOTSUPP without PN_CAP_FD.
 */
static inline int pn_device_fd(struct pn_device *device)
{
	return device->ops->fd(device);
}

/* The caller polls again and again and does nothing else: lets another process
 * run if one waits for this core. Returns after how many empty polls in a row
 * to call again. Call it without locks. */
static inline unsigned pn_device_idle(struct pn_device *device)
{
	return device->ops->idle ? device->ops->idle(device) : UINT_MAX;
}

/* 0: armed, the descriptor will become readable; -EAGAIN: there is something
 * already, call poll() first. */
static inline int pn_device_arm(struct pn_device *device)
{
	return device->ops->arm(device);
}

static inline uint64_t pn_device_now(struct pn_device *device)
{
	return device->ops->now(device);
}

/* Copies and, in virtual time, charges for it. The layers above copy payload
 * only through this. The ranges do not overlap. */
static inline void pn_copy(struct pn_device *device, void *dst, const void *src,
			   size_t len)
{
	if (pn_unlikely(device->ops->copy))
		device->ops->copy(device, dst, src, len);
	else
		memcpy(dst, src, len);
}

/* Memory could not be registered because of `why`. 0: it can be copied
 * nevertheless (read, or with `write` written), as read-only memory on `soft`;
 * -EFAULT: it cannot. In virtual time not checked. */
static inline int pn_copy_check(const struct pn_device *device, int why,
				const void *addr, size_t len, bool write)
{
	return why == -EFAULT && !device->ops->copy
		       ? pn_pages_check(addr, len, write)
		       : 0;
}

/* Sleeps while *word is value and now() is before deadline_ns; may return
 * early, so check again. One thread waits so for another thread (not for the
 * device): in virtual time both are tasks. The caller holds no lock, as for
 * wait(). */
void pn_device_futex_wait_until(struct pn_device *device,
				_Atomic uint32_t *word, uint32_t value,
				uint64_t deadline_ns);

/* The same without a deadline. */
static inline void pn_device_futex_wait(struct pn_device *device,
					_Atomic uint32_t *word, uint32_t value)
{
	pn_device_futex_wait_until(device, word, value, PN_FOREVER);
}

/* As pn_device_futex_wait_until(), and a cancellation point (base/cancel.h)
 * where time is real. */
void pn_device_block_cancelable(struct pn_device *device,
				_Atomic uint32_t *word, uint32_t value,
				uint64_t deadline_ns);

/* Wakes all threads that sleep on word, after it was changed. */
void pn_device_futex_wake(struct pn_device *device, _Atomic uint32_t *word);

/* Uses ns of this thread's CPU time in virtual time. Elsewhere it does nothing:
 * real work takes its real time. */
static inline void pn_device_consume_cpu(struct pn_device *device, uint64_t ns)
{
	if (pn_unlikely(device->ops->consume_cpu))
		device->ops->consume_cpu(device, ns);
}

#endif
