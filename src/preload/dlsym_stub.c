/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlsym() and dlvsym(), as the program finds them. Both depend on who calls
 * (RTLD_NEXT): libc looks at the return address. So what is not ours jumps to
 * libc's function with the caller's return address in place; no C compiler
 * promises that. The functions of dlsym.c get the return address as last
 * argument and return NULL if libc is to answer.
 */
#include "preload/dlsym.h"

#if defined(__x86_64__)
/* `last` is the register of the last argument. */
#define STUB(name, answer, real, last)                 \
	".globl " name "\n"                            \
	".type " name ", @function\n" name ":\n\t"     \
	".cfi_startproc\n\t"                           \
	"endbr64\n\t"                                  \
	"push %rdi\n\t"                                \
	".cfi_adjust_cfa_offset 8\n\t"                 \
	"push %rsi\n\t"                                \
	".cfi_adjust_cfa_offset 8\n\t"                 \
	"push %rdx\n\t" /* and the stack is aligned */ \
	".cfi_adjust_cfa_offset 8\n\t"                 \
	"mov 24(%rsp), " last "\n\t"                   \
	"call " answer "\n\t"                          \
	"pop %rdx\n\t"                                 \
	".cfi_adjust_cfa_offset -8\n\t"                \
	"pop %rsi\n\t"                                 \
	".cfi_adjust_cfa_offset -8\n\t"                \
	"pop %rdi\n\t"                                 \
	".cfi_adjust_cfa_offset -8\n\t"                \
	"test %rax, %rax\n\t"                          \
	"jz 1f\n\t"                                    \
	"ret\n"                                        \
	"1:\tjmp *" real "(%rip)\n\t"                  \
	".cfi_endproc\n"                               \
	".size " name ", . - " name "\n"

__asm__(".text\n" STUB("dlsym", "pn_dlsym_answer", "pn_dlsym_real", "%rdx")
		STUB("dlvsym", "pn_dlvsym_answer", "pn_dlvsym_real", "%rcx"));

#elif defined(__aarch64__)
#define STUB(name, answer, real, last)             \
	".globl " name "\n"                        \
	".type " name ", %function\n" name ":\n\t" \
	".cfi_startproc\n\t"                       \
	"hint #34\n\t" /* bti c */                 \
	"stp x29, x30, [sp, #-48]!\n\t"            \
	".cfi_adjust_cfa_offset 48\n\t"            \
	".cfi_rel_offset x29, 0\n\t"               \
	".cfi_rel_offset x30, 8\n\t"               \
	"mov x29, sp\n\t"                          \
	"stp x0, x1, [sp, #16]\n\t"                \
	"str x2, [sp, #32]\n\t"                    \
	"mov " last ", x30\n\t"                    \
	"bl " answer "\n\t"                        \
	"mov x16, x0\n\t"                          \
	"ldp x0, x1, [sp, #16]\n\t"                \
	"ldr x2, [sp, #32]\n\t"                    \
	"ldp x29, x30, [sp], #48\n\t"              \
	".cfi_adjust_cfa_offset -48\n\t"           \
	".cfi_restore x29\n\t"                     \
	".cfi_restore x30\n\t"                     \
	"cbz x16, 1f\n\t"                          \
	"mov x0, x16\n\t"                          \
	"ret\n"                                    \
	"1:\tadrp x16, " real "\n\t"               \
	"ldr x16, [x16, #:lo12:" real "]\n\t"      \
	"br x16\n\t"                               \
	".cfi_endproc\n"                           \
	".size " name ", . - " name "\n"

__asm__(".text\n" STUB("dlsym", "pn_dlsym_answer", "pn_dlsym_real", "x2")
		STUB("dlvsym", "pn_dlvsym_answer", "pn_dlvsym_real", "x3"));
#endif
