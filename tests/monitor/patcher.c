/* SPDX-License-Identifier: BSD-2-Clause */
#include "patcher.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/range.h"
#include "monitor/syscalls.h"

static atomic_uint calls;
static int (*next)(void *, size_t);
static enum patcher_kind installed_kind;

static int patched_munmap(void *addr, size_t len)
{
	calls++;
	if (next)
		return next(addr, len);
	if (installed_kind == PATCHER_SYSCALL)
		return (int)syscall(SYS_munmap, addr, len);
	return PN_SYSCALL(SYS_munmap, (long)addr, (long)len) ? -1 : 0;
}

static void *patched_sbrk(intptr_t increment)
{
	void **note = dlsym(RTLD_DEFAULT, "__curbrk");
	char *now = *note;
	char *then = (char *)PN_SYSCALL(SYS_brk, (long)(now + increment));

	calls++;
	*note = then;
	return then < now + increment ? (void *)-1 : now;
}

#if defined(__x86_64__)

struct jump {
	uint8_t move[2];
	uint8_t target[8];
	uint8_t go[3];
};

static struct jump make_jump(uintptr_t target)
{
	struct jump jump = { { 0x49, 0xbb }, { 0 }, { 0x41, 0xff, 0xe3 } };

	memcpy(jump.target, &target, sizeof(target));
	return jump;
}

/* Behind the landing pad (endbr64) of Ubuntu's libc. */
static uintptr_t read_jump(const void *entry)
{
	static const uint8_t pad[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	struct jump jump;
	uintptr_t target;

	if (!memcmp(entry, pad, sizeof(pad)))
		entry = (const char *)entry + sizeof(pad);
	memcpy(&jump, entry, sizeof(jump));
	memcpy(&target, jump.target, sizeof(target));
	return jump.move[0] == 0x49 && jump.move[1] == 0xbb ? target : 0;
}

#elif defined(__aarch64__)

/* movz, three movk, br x15, as UCX writes it. */
struct jump {
	uint32_t insn[5];
};

static struct jump make_jump(uintptr_t target)
{
	struct jump jump = { { 0, 0, 0, 0, 0xd61f01e0 } };

	for (unsigned i = 0; i < 4; i++)
		jump.insn[i] = (i ? 0xf280000f : 0xd280000f) | i << 21 |
			       (uint32_t)(target >> 16 * i & 0xffff) << 5;
	return jump;
}

/* Reads only what the monitor writes: ldr x16; br x16; target. */
static uintptr_t read_jump(const void *entry)
{
	uint32_t first;
	uintptr_t target;

	memcpy(&first, entry, sizeof(first));
	memcpy(&target, (const char *)entry + 8, sizeof(target));
	return first == 0x58000050 ? target : 0;
}

#endif

int patcher_install(enum patcher_kind kind)
{
	void *libc = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_LAZY);
	bool sbrks = kind == PATCHER_SBRK;
	void *entry = libc ? dlsym(libc, sbrks ? "sbrk" : "munmap") : NULL;
	struct jump jump = make_jump(sbrks ? (uintptr_t)patched_sbrk
					   : (uintptr_t)patched_munmap);
	struct pn_range pages =
		pn_range_pages((uintptr_t)entry, sizeof(jump), PN_PAGE_BYTES);

	if (!entry)
		return -1;
	installed_kind = kind;
	if (kind == PATCHER_POLITE)
		next = (int (*)(void *, size_t))read_jump(entry);
	if (mprotect((void *)pages.addr, pages.len,
		     PROT_READ | PROT_WRITE | PROT_EXEC))
		return -1;
	memcpy(entry, &jump, sizeof(jump));
	__builtin___clear_cache((char *)entry, (char *)entry + sizeof(jump));
	return mprotect((void *)pages.addr, pages.len, PROT_READ | PROT_EXEC);
}

unsigned patcher_calls(void)
{
	return calls;
}

/* When preloaded, it patches before any other library. */
__attribute__((constructor)) static void install_early(void)
{
	const char *early = getenv("PATCHER_EARLY");
	enum patcher_kind kind = PATCHER_RAW;

	if (!early)
		return;
	if (!strcmp(early, "syscall"))
		kind = PATCHER_SYSCALL;
	if (!strcmp(early, "sbrk"))
		kind = PATCHER_SBRK;
	if (patcher_install(kind))
		abort();
}
