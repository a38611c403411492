/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlsym(), as the program finds it. dlsym(RTLD_NEXT, ...) depends on who calls:
 * libc looks at the return address. So what is not ours jumps to libc's dlsym()
 * with the caller's return address in place; no C compiler promises that.
 * pn_preload_dlsym() gets the return address as third argument and returns
 * NULL if libc is to answer.
 */
#include "preload/cuda/preload.h"

#if defined(__x86_64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n\t"
	".cfi_startproc\n\t"
	"endbr64\n\t"
	"push %rdi\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	"push %rsi\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	"sub $8, %rsp\n\t" /* the stack is aligned at a call */
	".cfi_adjust_cfa_offset 8\n\t"
	"mov 24(%rsp), %rdx\n\t"
	"call pn_preload_dlsym\n\t"
	"add $8, %rsp\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"pop %rsi\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"pop %rdi\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"test %rax, %rax\n\t"
	"jz 1f\n\t"
	"ret\n"
	"1:\tjmp *pn_preload_real_dlsym(%rip)\n\t"
	".cfi_endproc\n"
	".size dlsym, . - dlsym\n");

#elif defined(__aarch64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n\t"
	".cfi_startproc\n\t"
	"hint #34\n\t" /* bti c */
	"stp x29, x30, [sp, #-32]!\n\t"
	".cfi_adjust_cfa_offset 32\n\t"
	".cfi_rel_offset x29, 0\n\t"
	".cfi_rel_offset x30, 8\n\t"
	"mov x29, sp\n\t"
	"stp x0, x1, [sp, #16]\n\t"
	"mov x2, x30\n\t"
	"bl pn_preload_dlsym\n\t"
	"mov x16, x0\n\t"
	"ldp x0, x1, [sp, #16]\n\t"
	"ldp x29, x30, [sp], #32\n\t"
	".cfi_adjust_cfa_offset -32\n\t"
	".cfi_restore x29\n\t"
	".cfi_restore x30\n\t"
	"cbz x16, 1f\n\t"
	"mov x0, x16\n\t"
	"ret\n"
	"1:\tadrp x16, pn_preload_real_dlsym\n\t"
	"ldr x16, [x16, #:lo12:pn_preload_real_dlsym]\n\t"
	"br x16\n\t"
	".cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#endif
