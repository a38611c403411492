/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_fake -- a fabric device over a provider that is a table of functions
 * here, so that a test can be the peer and send whatever it likes.
 *
 * Nouns
 *   packet  what the test sends as the peer; it arrives at once
 *   fetch   an fi_read() that the device has posted, from the peer's memory; it
 *           ends when the test says so, and then the bytes are written
 *
 * One peer, connected by fake_connect(). The device has `memory`, registered
 * with all rights. A fetch may only write into memory whose registration has
 * users then: fake_end_fetch() checks it.
 *
 * fake_serve() starts the device's service thread: from then on the provider is
 * used, and changed, with dev->lock.
 */
#ifndef PN_TESTS_FABRIC_FAKE_H
#define PN_TESTS_FABRIC_FAKE_H

#include "device/fabric/fabric_impl.h"

#define FAKE_MEMORY  ((size_t)64 << 10)
#define FAKE_ENTRIES 4096

struct fake_fetch {
	void *context;
	char *addr;
	size_t len;
};

struct fake {
	struct pn_fabric_device *dev;
	struct pn_fabric_peer *peer;
	struct pn_mr mr; /* of memory */
	char *memory;
	/* The provider. */
	struct fid_ep ep;
	struct fid_cq cq;
	struct fid_av av;
	struct fid_domain domain;
	struct fid_fabric fabric;
	struct fi_info info;
	struct fi_fabric_attr fabric_attr;
	struct fi_domain_attr domain_attr;
	struct fi_ep_attr ep_attr;
	struct fi_tx_attr tx_attr;
	struct pn_fabric_packet *posted[FAKE_ENTRIES];
	unsigned first_posted, nposted;
	struct fi_cq_msg_entry entries[FAKE_ENTRIES];
	int errors[FAKE_ENTRIES]; /* of these entries; 0: none */
	unsigned first_entry, nentries;
	struct fake_fetch fetches[FAKE_ENTRIES];
	unsigned nfetches;
	unsigned sent[32]; /* packets of each kind that the device has sent */
	/* What sends and reads return; 0: they are carried out. */
	int send_error, fetch_error;
	uint64_t requested_key; /* of the last registration */
	unsigned nregions;	/* registered now */
};

void fake_open(struct fake *f);
void fake_connect(struct fake *f);
void fake_close(struct fake *f);

/* With dev->heartbeat set. The provider gets a descriptor. */
void fake_serve(struct fake *f);

/* As they travel. */
void fake_deliver(struct fake *f, const void *bytes, size_t len);
/* With a header that belongs to the connection. */
void fake_deliver_next(struct fake *f, void *packet, size_t len);
/* The same, but the device makes no progress. */
void fake_arrive(struct fake *f, const void *bytes, size_t len);
void fake_arrive_next(struct fake *f, void *packet, size_t len);
void fake_progress(struct fake *f);
/* The oldest one. False: there is none. */
bool fake_end_fetch(struct fake *f);
/* The same, but the provider could not read. named: it says which one. */
bool fake_fail_fetch(struct fake *f, bool named);
/* A READ or WRITE of the device of so many bytes at the start of memory. */
int fake_post(struct fake *f, enum pn_op_kind kind, size_t len);
/* Polls, and returns the buffers. Returns the last status of an operation. */
int fake_poll(struct fake *f);

#endif
