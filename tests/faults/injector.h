/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * injector -- makes the n-th call of a kind fail.
 *
 * A program that links injector.c with the options of
 * tests/faults/CMakeLists.txt has the calls of pinion that can run out of
 * something (memory, mappings, threads, descriptors, buffers of sockets, space
 * in files, io_uring) go through functions of this module. Nothing fails until
 * injector_arm().
 *
 * A fault fails the n-th call of its kind after that (1 is the first), or this
 * one and all later ones. It fails as the system does: no effect, the usual
 * result and errno. Calls that free something never fail, but ibv_dereg_mr.
 * Threads: calls are counted over all threads of the process.
 * Caveat: calls that libc makes for itself are not seen.
 */
#ifndef PN_TESTS_FAULTS_INJECTOR_H
#define PN_TESTS_FAULTS_INJECTOR_H

#include <stdbool.h>

enum fault_kind {
	FAULT_MALLOC,	      /* malloc and all that allocate like it: ENOMEM */
	FAULT_MMAP,	      /* mmap, mremap: ENOMEM */
	FAULT_URING_SETUP,    /* io_uring_setup: ENOMEM */
	FAULT_URING_REGISTER, /* io_uring_register, so registrations: ENOMEM */
	FAULT_URING_ENTER,    /* io_uring_enter: EAGAIN */
	FAULT_THREAD,	      /* pthread_create: EAGAIN */
	FAULT_OPEN,	      /* open, openat, fopen, opendir: EMFILE */
	FAULT_DESCRIPTOR,     /* socket, eventfd, epoll_create1, ...: EMFILE */
	FAULT_SOCKET,	 /* bind, listen, connect, send, sendmsg: ENOBUFS */
	FAULT_SPACE,	 /* ftruncate, fallocate, write, ...: ENOSPC */
	FAULT_REGISTRAR, /* a scene's registrar: ENOMEM (injector_refuses()) */
	FAULT_VERBS,	 /* objects of libibverbs, calls of rdma_cm: ENOMEM */
	FAULT_REG_MR,	 /* ibv_reg_mr: ENOMEM */
	FAULT_DEREG_MR,	 /* ibv_dereg_mr: EBUSY */
	FAULT_POST,	 /* ibv_post_send, ibv_post_srq_recv: ENOMEM */
	FAULT_NKINDS,
};

extern const char *const fault_names[FAULT_NKINDS];

void injector_arm(enum fault_kind kind, unsigned long nth, bool always);

/* True: the n-th call was reached. Nothing fails from now on. */
bool injector_disarm(void);

/* Counts a call of a scene's registrar; true: it fails. */
bool injector_refuses(void);

#endif
