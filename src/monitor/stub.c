/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The function that replaces libc's syscall(). Some allocators (gperftools')
 * release memory through it. Most numbers have nothing to do with memory, and
 * some (clone, vfork, rt_sigreturn) return on another stack or not at all. So
 * it is written without a stack frame, as libc's own is. Numbers that release
 * memory jump to pn_hook_syscall() with all arguments in place.
 */
#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

#define TEXT_(x) #x
#define TEXT(x)	 TEXT_(x)

#define RELEASING(CASE)            \
	CASE(SYS_munmap)           \
	CASE(SYS_mmap)             \
	CASE(SYS_mremap)           \
	CASE(SYS_madvise)          \
	CASE(SYS_brk)              \
	CASE(SYS_shmdt)            \
	CASE(SYS_shmat)            \
	CASE(SYS_remap_file_pages) \
	CASE(SYS_process_madvise)  \
	CASE(SYS_ftruncate) CASE(SYS_truncate) CASE(SYS_fallocate)

#if defined(__x86_64__)
/* The kernel uses 32 bits; one of them selects calls with 32-bit pointers. */
#define NUMBER	 "mov %edi, %eax\n\tand $0xbfffffff, %eax\n\t"
#define CASE(nr) "cmp $" TEXT(nr) ", %eax\n\tje pn_hook_syscall\n\t"

__asm__(".text\n"
	".globl pn_syscall_stub\n"
	".hidden pn_syscall_stub\n"
	".type pn_syscall_stub, @function\n"
	"pn_syscall_stub:\n\t"
	".cfi_startproc\n\t"
	"endbr64\n\t" NUMBER RELEASING(
		CASE) "mov %rdi, %rax\n\t"
		      "mov %rsi, %rdi\n\t"
		      "mov %rdx, %rsi\n\t"
		      "mov %rcx, %rdx\n\t"
		      "mov %r8, %r10\n\t"
		      "mov %r9, %r8\n\t"
		      "mov 8(%rsp), %r9\n\t"
		      "syscall\n\t"
		      "cmp $-4095, %rax\n\t"
		      "jae 1f\n\t"
		      "ret\n"
		      "1:\tmov %rax, %rdi\n\t"
		      "jmp pn_hook_syscall_failed\n\t"
		      ".cfi_endproc\n"
		      ".size pn_syscall_stub, . - pn_syscall_stub\n");

#elif defined(__aarch64__)
/* The kernel uses 32 bits. */
#define CASE(nr) "cmp w0, #" TEXT(nr) "\n\tb.eq 2f\n\t"

__asm__(".text\n"
	".globl pn_syscall_stub\n"
	".hidden pn_syscall_stub\n"
	".type pn_syscall_stub, %function\n"
	"pn_syscall_stub:\n\t"
	".cfi_startproc\n\t"
	"hint #34\n\t" /* bti c */ RELEASING(
		CASE) "mov x8, x0\n\t"
		      "mov x0, x1\n\t"
		      "mov x1, x2\n\t"
		      "mov x2, x3\n\t"
		      "mov x3, x4\n\t"
		      "mov x4, x5\n\t"
		      "mov x5, x6\n\t"
		      "svc 0\n\t"
		      "cmn x0, #4095\n\t"
		      "b.cs 1f\n\t"
		      "ret\n"
		      "1:\tb pn_hook_syscall_failed\n"
		      "2:\tb pn_hook_syscall\n\t"
		      ".cfi_endproc\n"
		      ".size pn_syscall_stub, . - pn_syscall_stub\n");
#endif
