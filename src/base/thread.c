/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/process.h"

_Thread_local struct pn_thread *pn_thread_current;

/* Protects what follows, and `local` of every context against a key that is
 * being freed. */
static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct {
	bool taken;
	unsigned nending; /* threads inside `ended` */
	void (*ended)(void *value);
} keys[PN_THREAD_KEYS] PN_GUARDED_BY(&lock);
static int nkeys
	PN_GUARDED_BY(&lock); /* 1 above the highest key ever allocated */
static struct pn_list contexts PN_GUARDED_BY(&lock) = { &contexts, &contexts };
static pthread_cond_t ended_cond =
	PTHREAD_COND_INITIALIZER; /* `nending` is 0 */

/* fork() may come while another thread holds the lock. The child has one
 * thread; the contexts of the others stay listed, unused. */
static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
}

/* The threads that were inside `ended` do not exist here. What the thread had
 * belongs to the parent; the kernel has wiped it, if it can. */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	struct pn_thread *self = pn_thread_current;

	if (self)
		memset(self->local, 0, (size_t)nkeys * sizeof(*self->local));
	for (int key = 0; key < nkeys; key++)
		keys[key].nending = 0;
	pn_assert(!pthread_cond_init(&ended_cond, NULL));
	pn_unlock(&lock);
}

static pthread_key_t exit_key;
static bool exit_keyed PN_GUARDED_BY(&lock);

void pn_thread_init(struct pn_thread *thread)
{
	thread->site = 0;
	pn_lock(&lock);
	memset(thread->local, 0, (size_t)nkeys * sizeof(*thread->local));
	pn_list_init(&thread->link);
	pn_list_append(&contexts, &thread->link);
	pn_unlock(&lock);
}

/* Removes the first pointer of the context from *key on; *key goes behind it,
 * and *ended is the function to call, or NULL. NULL: there is none. Until
 * end_done() the owner of the key stays, since freeing the key waits. */
static void *take_local(struct pn_thread *thread, int *key,
			void (**ended)(void *value))
{
	void *value = NULL;

	pn_lock(&lock);
	while (*key < nkeys && !value)
		value = thread->local[(*key)++];
	*ended = NULL;
	if (value) {
		thread->local[*key - 1] = NULL;
		*ended = keys[*key - 1].taken ? keys[*key - 1].ended : NULL;
		keys[*key - 1].nending++;
	}
	pn_unlock(&lock);
	return value;
}

static void end_done(int key)
{
	pn_lock(&lock);
	if (!--keys[key].nending)
		pthread_cond_broadcast(&ended_cond);
	pn_unlock(&lock);
}

void pn_thread_fini(struct pn_thread *thread)
{
	void (*ended)(void *value);
	void *value;
	int key = 0;

	while ((value = take_local(thread, &key, &ended))) {
		if (ended)
			ended(value);
		end_done(key - 1);
	}
	pn_lock(&lock);
	pn_list_remove(&thread->link);
	pn_unlock(&lock);
}

/* --- contexts of the system's threads ------------------------------------- */

/* `local` begins a page, and the kernel wipes all its pages in children:
 * whatever kind of fork made the child, it finds no pointer there and takes the
 * slow path, which checks the process. */
static size_t head_bytes(size_t page)
{
	return (offsetof(struct pn_thread, local) + page - 1) & ~(page - 1);
}

static size_t local_bytes(size_t page)
{
	return (sizeof(((struct pn_thread *)0)->local) + page - 1) &
	       ~(page - 1);
}

static struct pn_thread *thread_alloc(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t head = head_bytes(page), local = local_bytes(page);
	char *map = mmap(NULL, head + local, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	madvise(map + head, local, MADV_WIPEONFORK);
	return pn_container_of(map + head, struct pn_thread, local);
}

static void thread_free(struct pn_thread *thread)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t head = head_bytes(page);

	munmap((char *)thread->local - head, head + local_bytes(page));
}

static void thread_exits(void *arg)
{
	/* A child in which no handler ran may not take the lock. */
	if (pn_process_is_unusable())
		return;
	pn_thread_fini(arg);
	pn_thread_current = NULL;
	thread_free(arg);
}

static int make_exit_key(void)
{
	int ret = 0;

	pn_lock(&lock);
	if (!exit_keyed)
		ret = -pthread_key_create(&exit_key, thread_exits);
	if (!exit_keyed && !ret) {
		pn_process_atfork(before_fork, after_fork, in_child);
		exit_keyed = true;
	}
	pn_unlock(&lock);
	return ret;
}

struct pn_thread *pn_thread_attach(void)
{
	struct pn_thread *thread;

	if (make_exit_key())
		return NULL;
	thread = thread_alloc();
	if (!thread)
		return NULL;
	if (pthread_setspecific(exit_key, thread)) {
		thread_free(thread);
		return NULL;
	}
	pn_thread_init(thread);
	pn_thread_current = thread;
	return thread;
}

static void clear_key(int key) PN_REQUIRES(&lock)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &contexts)
		pn_container_of(pos, struct pn_thread, link)->local[key] = NULL;
}

int pn_thread_key_alloc(void (*ended)(void *value))
{
	int found = make_exit_key();

	if (found)
		return found;
	found = -EMFILE;
	pn_lock(&lock);
	for (int key = 0; key < PN_THREAD_KEYS && found < 0; key++) {
		if (keys[key].taken)
			continue;
		keys[key].taken = true;
		keys[key].ended = ended;
		found = key;
	}
	if (found >= nkeys) {
		clear_key(found);
		nkeys = found + 1;
	}
	pn_unlock(&lock);
	return found;
}

void pn_thread_key_free(int key)
{
	pn_lock(&lock);
	clear_key(key);
	while (keys[key].nending)
		pthread_cond_wait(&ended_cond, &lock.pthread);
	keys[key].taken = false;
	pn_unlock(&lock);
}
