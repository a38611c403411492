/* SPDX-License-Identifier: BSD-2-Clause */
#include "injector_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>

const char *const fault_names[FAULT_NKINDS] = {
	[FAULT_MALLOC] = "malloc",
	[FAULT_MMAP] = "mmap",
	[FAULT_URING_SETUP] = "uring-setup",
	[FAULT_URING_REGISTER] = "uring-register",
	[FAULT_URING_ENTER] = "uring-enter",
	[FAULT_THREAD] = "thread",
	[FAULT_OPEN] = "open",
	[FAULT_DESCRIPTOR] = "descriptor",
	[FAULT_SOCKET] = "socket",
	[FAULT_SPACE] = "space",
	[FAULT_REGISTRAR] = "registrar",
	[FAULT_VERBS] = "verbs",
	[FAULT_REG_MR] = "reg-mr",
	[FAULT_DEREG_MR] = "dereg-mr",
	[FAULT_POST] = "post",
};

static const int errors[FAULT_NKINDS] = {
	[FAULT_MALLOC] = ENOMEM,      [FAULT_MMAP] = ENOMEM,
	[FAULT_URING_SETUP] = ENOMEM, [FAULT_URING_REGISTER] = ENOMEM,
	[FAULT_URING_ENTER] = EAGAIN, [FAULT_THREAD] = EAGAIN,
	[FAULT_OPEN] = EMFILE,	      [FAULT_DESCRIPTOR] = EMFILE,
	[FAULT_SOCKET] = ENOBUFS,     [FAULT_SPACE] = ENOSPC,
	[FAULT_REGISTRAR] = ENOMEM,
};

static atomic_ulong countdown; /* the call that makes it 0 fails */
static atomic_bool armed, fails_always, reached;
static _Atomic enum fault_kind armed_kind;

void injector_arm(enum fault_kind kind, unsigned long nth, bool always)
{
	armed_kind = kind;
	countdown = nth;
	fails_always = always;
	reached = false;
	armed = true;
}

bool injector_disarm(void)
{
	armed = false;
	return reached;
}

/* Where a debugger stops to see which call fails. */
__attribute__((noinline)) static void injector_hit(void)
{
	__asm__ volatile("");
}

bool injector_fails(enum fault_kind kind, int error)
{
	if (!armed || armed_kind != kind)
		return false;
	if (!reached && atomic_fetch_sub(&countdown, 1) != 1)
		return false;
	if (atomic_exchange(&reached, true) && !fails_always)
		return false;
	injector_hit();
	errno = error;
	return true;
}

static bool fails(enum fault_kind kind)
{
	return injector_fails(kind, errors[kind]);
}

bool injector_refuses(void)
{
	return fails(FAULT_REGISTRAR);
}

#define WRAP(kind, type, failed, name, params, args) \
	WRAP_ERROR(kind, errors[kind], type, failed, name, params, args)

WRAP(FAULT_MALLOC, void *, NULL, malloc, (size_t len), (len))
WRAP(FAULT_MALLOC, void *, NULL, calloc, (size_t n, size_t len), (n, len))
WRAP(FAULT_MALLOC, void *, NULL, realloc, (void *old, size_t len), (old, len))
WRAP(FAULT_MALLOC, void *, NULL, reallocarray,
     (void *old, size_t n, size_t len), (old, n, len))
WRAP(FAULT_MALLOC, void *, NULL, aligned_alloc, (size_t align, size_t len),
     (align, len))
WRAP(FAULT_MALLOC, char *, NULL, strdup, (const char *text), (text))
WRAP(FAULT_MALLOC, char *, NULL, strndup, (const char *text, size_t len),
     (text, len))

WRAP(FAULT_MMAP, void *, MAP_FAILED, mmap,
     (void *at, size_t len, int prot, int flags, int fd, off_t offset),
     (at, len, prot, flags, fd, offset))

WRAP(FAULT_THREAD, int, EAGAIN, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *),
      void *arg),
     (thread, attr, run, arg))

WRAP(FAULT_OPEN, FILE *, NULL, fopen, (const char *path, const char *mode),
     (path, mode))
WRAP(FAULT_OPEN, DIR *, NULL, opendir, (const char *path), (path))
WRAP(FAULT_OPEN, int, -1, shm_open, (const char *name, int flags, mode_t mode),
     (name, flags, mode))

WRAP(FAULT_DESCRIPTOR, int, -1, socket, (int domain, int type, int protocol),
     (domain, type, protocol))
WRAP(FAULT_DESCRIPTOR, int, -1, eventfd, (unsigned value, int flags),
     (value, flags))
WRAP(FAULT_DESCRIPTOR, int, -1, epoll_create1, (int flags), (flags))
WRAP(FAULT_DESCRIPTOR, int, -1, memfd_create,
     (const char *name, unsigned flags), (name, flags))
WRAP(FAULT_DESCRIPTOR, int, -1, pipe2, (int ends[2], int flags), (ends, flags))
WRAP(FAULT_DESCRIPTOR, int, -1, dup, (int fd), (fd))
WRAP(FAULT_DESCRIPTOR, int, -1, accept4,
     (int fd, struct sockaddr *address, socklen_t *len, int flags),
     (fd, address, len, flags))

/* Those of local sockets know no ENOBUFS. */
WRAP_ERROR(FAULT_SOCKET, ENOMEM, int, -1, bind,
	   (int fd, const struct sockaddr *address, socklen_t len),
	   (fd, address, len))
WRAP_ERROR(FAULT_SOCKET, ENOMEM, int, -1, listen, (int fd, int backlog),
	   (fd, backlog))
WRAP_ERROR(FAULT_SOCKET, ENOMEM, int, -1, connect,
	   (int fd, const struct sockaddr *address, socklen_t len),
	   (fd, address, len))
WRAP(FAULT_SOCKET, ssize_t, -1, send,
     (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
WRAP(FAULT_SOCKET, ssize_t, -1, sendmsg,
     (int fd, const struct msghdr *message, int flags), (fd, message, flags))

WRAP(FAULT_SPACE, int, -1, ftruncate, (int fd, off_t len), (fd, len))
WRAP(FAULT_SPACE, int, -1, fallocate,
     (int fd, int mode, off_t offset, off_t len), (fd, mode, offset, len))
WRAP(FAULT_SPACE, int, ENOSPC, posix_fallocate,
     (int fd, off_t offset, off_t len), (fd, offset, len))
WRAP(FAULT_SPACE, ssize_t, -1, pwrite,
     (int fd, const void *data, size_t len, off_t offset),
     (fd, data, len, offset))

/* --- functions with a variable number of arguments ------------------------ */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
void *__real_mremap(void *old, size_t old_len, size_t len, int flags, ...);
void *__wrap_mremap(void *old, size_t old_len, size_t len, int flags, ...);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* These read arguments that the caller may not have given, as libc does. */
#define READS_MORE __attribute__((no_sanitize_address))

/* The argument behind `last`; what it is when there is none does not matter. */
#define NEXT_ARGUMENT(last, type, out)       \
	do {                                 \
		va_list list;                \
		va_start(list, last);        \
		*(out) = va_arg(list, type); \
		va_end(list);                \
	} while (0)

READS_MORE int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode;

	NEXT_ARGUMENT(flags, mode_t, &mode);
	return fails(FAULT_OPEN) ? -1 : __real_open(path, flags, mode);
}

READS_MORE int __wrap_openat(int folder, const char *path, int flags, ...)
{
	mode_t mode;

	NEXT_ARGUMENT(flags, mode_t, &mode);
	return fails(FAULT_OPEN) ? -1
				 : __real_openat(folder, path, flags, mode);
}

READS_MORE void *__wrap_mremap(void *old, size_t old_len, size_t len, int flags,
			       ...)
{
	void *to;

	NEXT_ARGUMENT(flags, void *, &to);
	return fails(FAULT_MMAP) ? MAP_FAILED
				 : __real_mremap(old, old_len, len, flags, to);
}

static bool syscall_fails(long number)
{
	switch (number) {
	case SYS_io_uring_setup:
		return fails(FAULT_URING_SETUP);
	case SYS_io_uring_register:
		return fails(FAULT_URING_REGISTER);
	case SYS_io_uring_enter:
		return fails(FAULT_URING_ENTER);
	case SYS_pidfd_open:
	case SYS_pidfd_getfd:
		return fails(FAULT_DESCRIPTOR);
	}
	return false;
}

READS_MORE long __wrap_syscall(long number, ...)
{
	long v[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		v[i] = va_arg(list, long);
	va_end(list);
	if (syscall_fails(number))
		return -1;
	return __real_syscall(number, v[0], v[1], v[2], v[3], v[4], v[5]);
}
