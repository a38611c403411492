/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/coroutine.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "base/range.h"
#include "base/thread.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define WITH_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WITH_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif

/* --- saved contexts ------------------------------------------------------- */

#if defined(__x86_64__) && !defined(PN_COROUTINE_UCONTEXT)

/* Everything that a function call must preserve lies on the stack; this is its
 * top. */
struct saved_context {
	void *sp;
};

/* Saves what the ABI makes the callee preserve (with the floating-point control
 * words), switches stacks and restores the same of the other side. */
void pn_coroutine_switch(struct saved_context *from,
			 const struct saved_context *to);

__asm__(".text\n"
	".p2align 4\n"
	".globl pn_coroutine_switch\n"
	".hidden pn_coroutine_switch\n"
	".type pn_coroutine_switch, @function\n"
	"pn_coroutine_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq (%rsi), %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size pn_coroutine_switch, . - pn_coroutine_switch\n"
	/* The first frame: its function is in %r12, its argument in %r13. */
	".p2align 4\n"
	".globl pn_coroutine_first\n"
	".hidden pn_coroutine_first\n"
	".type pn_coroutine_first, @function\n"
	"pn_coroutine_first:\n"
	"	movq %r13, %rdi\n"
	"	xorl %ebp, %ebp\n"
	"	callq *%r12\n"
	"	ud2\n"
	".size pn_coroutine_first, . - pn_coroutine_first\n");

__attribute__((visibility("hidden"))) void pn_coroutine_first(void);

/* Prepares the stack for pn_coroutine_switch(): control words, six registers,
 * the return address. */
static void context_init(struct saved_context *saved_context, void *stack,
			 size_t bytes, void (*fn)(void *), void *arg)
{
	static const uint32_t control[2] = { 0x1f80, 0x037f };
	uint64_t *top = (uint64_t *)((char *)stack + bytes) - 2;

	*--top = (uint64_t)(uintptr_t)pn_coroutine_first;
	*--top = 0;			   /* rbp */
	*--top = 0;			   /* rbx */
	*--top = (uint64_t)(uintptr_t)fn;  /* r12 */
	*--top = (uint64_t)(uintptr_t)arg; /* r13 */
	*--top = 0;			   /* r14 */
	*--top = 0;			   /* r15 */
	*--top = (uint64_t)control[1] << 32 | control[0];
	saved_context->sp = top;
}

static void context_switch(struct saved_context *from, struct saved_context *to)
{
	pn_coroutine_switch(from, to);
}

#else

#include <ucontext.h>

struct saved_context {
	ucontext_t context;
};

/* makecontext() passes only ints. */
static void first(unsigned fn_high, unsigned fn_low, unsigned arg_high,
		  unsigned arg_low)
{
	void (*fn)(void *) =
		(void (*)(void *))(uintptr_t)((uint64_t)fn_high << 32 | fn_low);

	fn((void *)(uintptr_t)((uint64_t)arg_high << 32 | arg_low));
}

static void context_init(struct saved_context *saved_context, void *stack,
			 size_t bytes, void (*fn)(void *), void *arg)
{
	uint64_t f = (uintptr_t)fn, a = (uintptr_t)arg;

	pn_assert(!getcontext(&saved_context->context));
	saved_context->context.uc_stack.ss_sp = stack;
	saved_context->context.uc_stack.ss_size = bytes;
	saved_context->context.uc_link = NULL;
	makecontext(&saved_context->context, (void (*)(void))first, 4,
		    (unsigned)(f >> 32), (unsigned)f, (unsigned)(a >> 32),
		    (unsigned)a);
}

static void context_switch(struct saved_context *from, struct saved_context *to)
{
	pn_assert(!swapcontext(&from->context, &to->context));
}

#endif

/* --- coroutines ----------------------------------------------------------- */

struct pn_coroutine {
	struct saved_context inside; /* where the coroutine continues; valid
					while suspended */
	struct saved_context
		outside; /* where resume() continues; valid while it runs */
	void (*fn)(void *arg);
	void *arg;
	struct pn_thread
		thread; /* the coroutine counts as a thread of its program */
	char *mapping;	/* guard page, then the stack */
	size_t mapping_bytes;
	bool finished;
#ifdef WITH_ASAN
	void *fake_stack; /* ASan's, while suspended */
	const void *outside_stack;
	size_t outside_bytes;
#endif
#ifdef WITH_TSAN
	void *fiber, *outside_fiber;
#endif
};

static char *stack_of(const struct pn_coroutine *co)
{
	return co->mapping + PN_PAGE_BYTES;
}

static size_t stack_bytes_of(const struct pn_coroutine *co)
{
	return co->mapping_bytes - PN_PAGE_BYTES;
}

/* Called first on either side after a switch into a coroutine. */
static void entered(struct pn_coroutine *co)
{
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(co->fake_stack, &co->outside_stack,
					&co->outside_bytes);
#else
	(void)co;
#endif
}

static void leave(struct pn_coroutine *co)
{
#ifdef WITH_ASAN
	/* NULL: this stack will not be used again. */
	__sanitizer_start_switch_fiber(co->finished ? NULL : &co->fake_stack,
				       co->outside_stack, co->outside_bytes);
#endif
#ifdef WITH_TSAN
	__tsan_switch_to_fiber(co->outside_fiber, 0);
#endif
	context_switch(&co->inside, &co->outside);
}

static void body(void *arg)
{
	struct pn_coroutine *co = arg;

	entered(co);
	co->fn(co->arg);
	co->finished = true;
	leave(co);
}

static int map_stack(struct pn_coroutine *co, size_t bytes)
{
	bytes = pn_range_pages(0, bytes, PN_PAGE_BYTES).len + PN_PAGE_BYTES;
	co->mapping =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
		     -1, 0);
	if (co->mapping == MAP_FAILED)
		return -ENOMEM;
	if (mprotect(co->mapping, PN_PAGE_BYTES, PROT_NONE)) {
		munmap(co->mapping, bytes);
		return -ENOMEM;
	}
	co->mapping_bytes = bytes;
	return 0;
}

int pn_coroutine_create(size_t stack_bytes, void (*fn)(void *arg), void *arg,
			struct pn_coroutine **out)
{
	struct pn_coroutine *co = calloc(1, sizeof(*co));

	if (!co)
		return -ENOMEM;
	if (map_stack(co, stack_bytes)) {
		free(co);
		return -ENOMEM;
	}
	co->fn = fn;
	co->arg = arg;
	pn_thread_init(&co->thread);
	context_init(&co->inside, stack_of(co), stack_bytes_of(co), body, co);
#ifdef WITH_TSAN
	co->fiber = __tsan_create_fiber(0);
#endif
	*out = co;
	return 0;
}

void pn_coroutine_destroy(struct pn_coroutine *co)
{
	if (!co)
		return;
	pn_thread_fini(&co->thread);
#ifdef WITH_TSAN
	__tsan_destroy_fiber(co->fiber);
#endif
#ifdef WITH_ASAN
	/* A coroutine destroyed in the middle leaves the red zones of its
	 * frames behind. */
	__asan_unpoison_memory_region(stack_of(co), stack_bytes_of(co));
#endif
	munmap(co->mapping, co->mapping_bytes);
	free(co);
}

void pn_coroutine_resume(struct pn_coroutine *co)
{
	struct pn_thread *outside = pn_thread_swap(&co->thread);
#ifdef WITH_ASAN
	void *fake_stack;

	__sanitizer_start_switch_fiber(&fake_stack, stack_of(co),
				       stack_bytes_of(co));
#endif
	pn_assert(!co->finished);
#ifdef WITH_TSAN
	co->outside_fiber = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(co->fiber, 0);
#endif
	context_switch(&co->outside, &co->inside);
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
	pn_thread_swap(outside);
}

void pn_coroutine_suspend(struct pn_coroutine *co)
{
	leave(co);
	entered(co);
}

bool pn_coroutine_finished(const struct pn_coroutine *co)
{
	return co->finished;
}
