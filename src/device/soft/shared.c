/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/range.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int map_file(int fd, size_t len, void **map)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* A child of fork() must not use it. */
	madvise(p, len, MADV_DONTFORK);
	*map = p;
	return 0;
}

int pn_soft_memfd(const char *name, size_t len, int *fd, void **map)
{
	int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int ret;

	if (file < 0)
		return -errno;
	ret = ftruncate(file, (off_t)len) || fcntl(file, F_ADD_SEALS, SEALS)
		      ? -errno
		      : map_file(file, len, map);
	if (ret)
		close(file);
	else
		*fd = file;
	return ret;
}

int pn_soft_map(int fd, size_t len, void **map)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    (uint64_t)st.st_size < len)
		return -EPROTO;
	return map_file(fd, len, map);
}

void pn_soft_robust_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pn_assert(!pthread_mutex_init(lock, &attr));
	pthread_mutexattr_destroy(&attr);
}

#define SPINS	      200
#define YIELDS	      400
#define SLEEP_MIN_NS  20000
#define SLEEP_DOUBLES 5

/* The lock is held for one chunk: mostly it is free before a sleep pays off. */
static void back_off(unsigned tries)
{
	unsigned nsleeps = tries - YIELDS;

	if (tries < SPINS)
		pn_relax();
	else if (tries < YIELDS)
		sched_yield();
	else
		nanosleep(
			&(struct timespec){
				.tv_nsec = (long)SLEEP_MIN_NS
					   << (nsleeps < SLEEP_DOUBLES
						       ? nsleeps
						       : SLEEP_DOUBLES),
			},
			NULL);
}

/* Never sleeps in the mutex itself. A waiter that is woken and then killed
 * loses the wake-up if another thread took the lock in between, and the kernel
 * cannot detect that: the other waiters would sleep for ever. */
bool pn_soft_robust_lock(pthread_mutex_t *lock)
{
	unsigned tries = 0;
	int ret;

	while ((ret = pthread_mutex_trylock(lock)) == EBUSY)
		back_off(tries++);
	/* ENOTRECOVERABLE cannot occur: every holder after a death repairs. */
	pn_assert(!ret || ret == EOWNERDEAD);
	return ret == EOWNERDEAD;
}

void pn_soft_robust_repaired(pthread_mutex_t *lock)
{
	pn_assert(!pthread_mutex_consistent(lock));
}

void pn_soft_robust_unlock(pthread_mutex_t *lock)
{
	pn_assert(!pthread_mutex_unlock(lock));
}

/* The kernel defines the word and its bits (set_robust_list(2)). */
bool pn_soft_robust_is_orphan(pthread_mutex_t *lock)
{
	const int *word = &lock->__data.__lock;

	return __atomic_load_n(word, __ATOMIC_ACQUIRE) & FUTEX_OWNER_DIED;
}

/* The order of the stores is for readers without the lock: they read
 * generation, fields, generation, and see either 0, or the same generation
 * twice and its fields. */
void pn_soft_slot_set(struct pn_soft_slot *slot, uint64_t generation,
		      uint64_t base, uint64_t len, unsigned access)
{
	atomic_store(&slot->base, base);
	atomic_store(&slot->len, len);
	atomic_store(&slot->access, access);
	atomic_store(&slot->generation, generation);
}

void pn_soft_slot_clear(struct pn_soft_slot *slot)
{
	atomic_store(&slot->generation, 0);
}

bool pn_soft_slot_grants(struct pn_soft_slot *slot,
			 const struct pn_soft_access *use, uint64_t *base)
{
	uint64_t want = pn_soft_key_generation(use->key);
	struct pn_range whole;
	unsigned granted;

	if (!want || atomic_load(&slot->generation) != want)
		return false;
	whole.addr = atomic_load(&slot->base);
	whole.len = atomic_load(&slot->len);
	granted = atomic_load(&slot->access);
	*base = whole.addr;
	return atomic_load(&slot->generation) == want &&
	       (granted & use->access) == use->access &&
	       pn_range_covers(whole, (struct pn_range){ use->addr, use->len });
}
