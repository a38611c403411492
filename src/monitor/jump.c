/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The jump at the entry of a patched function: how it is written, and how a
 * jump that another library has written is recognised.
 *
 * Ours reaches any address and uses only a register that the ABI reserves for
 * such veneers (r11; x16). A landing pad (endbr64; bti c) stays in front.
 *
 * The jump is written through /proc/self/mem: the kernel copies the page, which
 * is never writable and always executable. Where that is not permitted, the
 * page is made writable instead of executable for a moment, with signals
 * blocked, and with system calls made from here, since libc's mprotect may be
 * in that page.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

#if defined(__x86_64__)

static size_t landing_pad_bytes(const uint8_t *entry)
{
	return get32(entry) == 0xfa1e0ff3 ? 4 : 0; /* endbr64 */
}

/* movabs $target, %r11; jmp *%r11 */
static size_t encode(uint8_t *code, const void *target)
{
	static const uint8_t template[] = { 0x49, 0xbb, 0, 0,	 0,    0,   0,
					    0,	  0,	0, 0x41, 0xff, 0xe3 };

	memcpy(code, template, sizeof(template));
	put64(code + 2, (uintptr_t)target);
	return sizeof(template);
}

/* The jumps that hooking libraries use: a move to a register and a jump through
 * it (UCX, Open MPI, libfabric, pinion), a near jump, a jump through memory. */
static uintptr_t decode(const uint8_t *c)
{
	if (c[0] == 0x49 && c[1] == 0xbb && c[10] == 0x41 && c[11] == 0xff &&
	    c[12] == 0xe3)
		return get64(c + 2);
	if (c[0] == 0x48 && c[1] == 0xb8 && c[10] == 0xff && c[11] == 0xe0)
		return get64(c + 2);
	if (c[0] == 0xe9)
		return (uintptr_t)c + 5 + (uintptr_t)(int32_t)get32(c + 1);
	if (c[0] == 0xff && c[1] == 0x25)
		return get64(c + 6 + (int32_t)get32(c + 2));
	return 0;
}

#elif defined(__aarch64__)

static size_t landing_pad_bytes(const uint8_t *entry)
{
	return get32(entry) == 0xd503245f ? 4 : 0; /* bti c */
}

/* ldr x16, 1f; br x16; 1: target */
static size_t encode(uint8_t *code, const void *target)
{
	static const uint32_t template[] = { 0x58000050, 0xd61f0200 };

	memcpy(code, template, sizeof(template));
	put64(code + sizeof(template), (uintptr_t)target);
	return sizeof(template) + sizeof(uint64_t);
}

/* movz and movk of one register, then a branch to it (UCX, Open MPI). */
static uintptr_t decode_moves(const uint8_t *c)
{
	uint32_t reg = get32(c) & 31;
	uintptr_t target = 0;

	for (unsigned i = 0; i < 5; i++) {
		uint32_t insn = get32(c + 4 * i);

		if (insn == (0xd61f0000 | reg << 5)) /* br */
			return target;
		if ((insn & 0xff80001f) != (i ? 0xf2800000 : 0xd2800000) + reg)
			return 0;
		target |= (uintptr_t)(insn >> 5 & 0xffff)
			  << 16 * (insn >> 21 & 3);
	}
	return 0;
}

static uintptr_t decode(const uint8_t *c)
{
	uint32_t first = get32(c), reg = first & 31;

	if ((first & 0xffffffe0) == 0x58000040 && /* ldr reg, c + 8 */
	    get32(c + 4) == (0xd61f0000 | reg << 5))
		return get64(c + 8);
	if ((first & 0xfc000000) == 0x14000000) /* b */
		return (uintptr_t)c +
		       (uintptr_t)((int64_t)((uint64_t)first << 38) >> 36);
	return decode_moves(c);
}

#endif

size_t pn_jump_encode(const void *entry, const void *target,
		      uint8_t code[PN_JUMP_MAX_BYTES])
{
	size_t pad = landing_pad_bytes(entry);

	memcpy(code, entry, pad);
	return pad + encode(code + pad, target);
}

void *pn_jump_decode(const void *entry)
{
	const uint8_t *code = entry;

	return (void *)decode(code + landing_pad_bytes(code));
}

static int own_memory = -1; /* between begin and end */

void pn_jump_begin(void)
{
	if (!pn_monitor_faults.no_proc_mem)
		own_memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
}

void pn_jump_end(void)
{
	if (own_memory >= 0)
		close(own_memory);
	own_memory = -1;
}

static bool write_through_proc(void *entry, const uint8_t *code, size_t len)
{
	return own_memory >= 0 &&
	       pwrite(own_memory, code, len, (off_t)(uintptr_t)entry) ==
		       (ssize_t)len;
}

static long protect(struct pn_range pages, long prot)
{
	return PN_SYSCALL(SYS_mprotect, (long)pages.addr, (long)pages.len,
			  prot);
}

static long write_through_mprotect(void *entry, const uint8_t *code, size_t len)
{
	struct pn_range pages =
		pn_range_pages((uintptr_t)entry, len, pn_monitor_page_bytes());
	volatile uint8_t *to = entry;
	uint64_t all = ~UINT64_C(0), old;
	long ret;

	PN_SYSCALL(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old,
		   sizeof(all));
	ret = protect(pages, PROT_READ | PROT_WRITE);
	if (!ret) {
		for (size_t i = 0; i < len; i++)
			to[i] = code[i];
		ret = protect(pages, PROT_READ | PROT_EXEC);
	}
	PN_SYSCALL(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof(old));
	return ret;
}

int pn_jump_write(void *entry, const uint8_t *code, size_t len)
{
	long ret = 0;

	if (!write_through_proc(entry, code, len))
		ret = write_through_mprotect(entry, code, len);
	__builtin___clear_cache((char *)entry, (char *)entry + len);
	if (!ret && memcmp(entry, code, len))
		ret = -EIO;
	return (int)ret;
}
