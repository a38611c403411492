/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"

/* The version of the layout and of the rules by which members decide (share.h).
 * It is in the name, so that different versions do not meet; and in the file,
 * behind "pinion", since any process of the user can write to it. */
#define LAYOUT	1
#define VERSION (UINT64_C(0x70696e696f6e0000) | LAYOUT)

struct slot {
	_Atomic uint64_t owner;	    /* 0: free */
	_Atomic uint64_t announced; /* the owner that filled the slot */
	_Atomic uint64_t bytes;
	_Atomic uint64_t cores[PN_CORES_WORDS];
};

struct segment {
	_Atomic uint64_t version; /* 0: just created */
	struct slot slots[PN_SHARE_MAX];
};

struct pn_helper_registry {
	struct segment *segment;
	struct slot *slot; /* of this member */
	uint64_t process;
	pid_t pid;
	struct pn_member members[PN_SHARE_MAX]; /* as last read */
};

/* --- processes ------------------------------------------------------------ */

/* Reads /proc/PID/stat. -ESRCH: there is no such process. */
static int read_stat(pid_t pid, char *text, size_t size)
{
	char path[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	text[n] = '\0';
	return 0;
}

/* Start time and PID of a living process. The time is in ticks since boot; its
 * low half tells processes with the same PID apart. -ESRCH: there is none. */
static int process_of(pid_t pid, uint64_t *out)
{
	char text[1024], state;
	unsigned long long start;
	const char *rest;
	long nthreads;
	int ret = read_stat(pid, text, sizeof(text));

	if (ret)
		return ret;
	/* The command's name in parentheses may contain parentheses. */
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest,
			    ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u "
			    "%*u %*d %*d %*d %*d %ld %*d %llu",
			    &state, &nthreads, &start) != 3)
		return -EIO;
	/* A zombie is dead. A process whose first thread ended before the
	 * others looks the same, but has more threads. */
	if (state == 'X' || (state == 'Z' && nthreads <= 1))
		return -ESRCH;
	*out = (uint64_t)start << 32 | (uint32_t)pid;
	return 0;
}

/* A process that cannot be examined, say, for lack of descriptors, counts as
 * alive. */
static bool is_alive(uint64_t process)
{
	uint64_t now;
	int ret;

	if (!process)
		return false;
	ret = process_of((pid_t)(uint32_t)process, &now);
	return ret ? ret != -ESRCH : now == process;
}

/* --- the segment ---------------------------------------------------------- */

void pn_helper_registry_name(char name[PN_HELPER_REGISTRY_NAME_BYTES])
{
	struct stat namespace = { 0 };

	/* Without /proc all count as one namespace. */
	stat("/proc/self/ns/pid", &namespace);
	snprintf(name, PN_HELPER_REGISTRY_NAME_BYTES,
		 "/pinion-helpers-%u-%u-%llu", LAYOUT, (unsigned)geteuid(),
		 (unsigned long long)namespace.st_ino);
}

/* Logs why, and what to do. */
static int refuse(const char *name, int ret, const char *why)
{
	pn_warn("helpers cannot share cores through /dev/shm%s: %s; remove it "
		"when no other program uses it, or set helper=own or off",
		name, why);
	return ret;
}

/* Only this user may have created the file and may write to it. */
static int check_file(const char *name, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return refuse(name, -EPERM, "it is not a plain file");
	if (st.st_uid != geteuid())
		return refuse(name, -EPERM, "it belongs to another user");
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return refuse(name, -EPERM, "others may use it");
	if (st.st_size && st.st_size != sizeof(struct segment))
		return refuse(name, -EPROTO,
			      "it has the size of another version");
	return 0;
}

static int open_segment(const char *name)
{
	int fd = shm_open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
			  S_IRUSR | S_IWUSR);
	int ret;

	if (fd < 0) {
		ret = -errno;
		return refuse(name, ret, strerror(-ret));
	}
	ret = check_file(name, fd);
	/* Several may do this at once: the size is the same. */
	if (!ret && ftruncate(fd, sizeof(struct segment)))
		ret = refuse(name, -errno, strerror(errno));
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

static int map_segment(const char *name, struct segment **out)
{
	int fd = open_segment(name);
	struct segment *segment;
	uint64_t version = 0;

	if (fd < 0)
		return fd;
	segment = mmap(NULL, sizeof(*segment), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);
	close(fd);
	if (segment == MAP_FAILED)
		return refuse(name, -errno, strerror(errno));
	if (!atomic_compare_exchange_strong(&segment->version, &version,
					    VERSION) &&
	    version != VERSION) {
		munmap(segment, sizeof(*segment));
		return refuse(name, -EPROTO, "it is of another version");
	}
	*out = segment;
	return 0;
}

/* --- slots ---------------------------------------------------------------- */

/* Takes a free slot, or one whose owner is dead. */
static int take_slot(struct pn_helper_registry *registry, const char *name)
{
	int ret = process_of(registry->pid, &registry->process);

	if (ret)
		return refuse(name, ret, "/proc does not tell who is alive");
	for (unsigned i = 0; i < PN_SHARE_MAX; i++) {
		struct slot *slot = &registry->segment->slots[i];
		uint64_t owner = atomic_load(&slot->owner);

		if (!is_alive(owner) &&
		    atomic_compare_exchange_strong(&slot->owner, &owner,
						   registry->process)) {
			registry->slot = slot;
			return 0;
		}
	}
	return refuse(name, -EUSERS, "all its slots are taken");
}

/* Readers skip the slot until it is announced, also when the same process had
 * it before: leaving clears `announced`. */
static void fill(struct slot *slot, uint64_t process,
		 const struct pn_cores *cores)
{
	atomic_store(&slot->bytes, 0);
	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		atomic_store(&slot->cores[i], cores->word[i]);
	atomic_store(&slot->announced, process);
}

static bool is_announced(struct slot *slot, uint64_t *process)
{
	*process = atomic_load(&slot->announced);
	return *process && atomic_load(&slot->owner) == *process;
}

static bool read_slot(struct slot *slot, struct pn_member *out)
{
	uint64_t again;

	if (!is_announced(slot, &out->process))
		return false;
	out->bytes = atomic_load(&slot->bytes);
	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		out->cores.word[i] = atomic_load(&slot->cores[i]);
	return is_announced(slot, &again) && again == out->process;
}

/* --- members -------------------------------------------------------------- */

int pn_helper_registry_join(const char *name, const struct pn_cores *cores,
			    struct pn_helper_registry **out)
{
	char own_name[PN_HELPER_REGISTRY_NAME_BYTES];
	struct pn_helper_registry *registry = calloc(1, sizeof(*registry));
	int ret;

	if (!registry)
		return -ENOMEM;
	if (!name) {
		pn_helper_registry_name(own_name);
		name = own_name;
	}
	ret = map_segment(name, &registry->segment);
	if (ret)
		goto free_registry;
	registry->pid = getpid();
	ret = take_slot(registry, name);
	if (ret)
		goto unmap;
	fill(registry->slot, registry->process, cores);
	*out = registry;
	return 0;

unmap:
	munmap(registry->segment, sizeof(*registry->segment));
free_registry:
	free(registry);
	return ret;
}

void pn_helper_registry_leave(struct pn_helper_registry *registry)
{
	if (!registry)
		return;
	if (registry->pid == getpid()) {
		atomic_store(&registry->slot->announced, 0);
		atomic_store(&registry->slot->owner, 0);
	}
	munmap(registry->segment, sizeof(*registry->segment));
	free(registry);
}

void pn_helper_registry_publish(struct pn_helper_registry *registry,
				uint64_t bytes)
{
	atomic_store(&registry->slot->bytes, bytes);
}

/* This member is among them: no process takes the slot of a living one. */
unsigned pn_helper_registry_read(struct pn_helper_registry *registry,
				 const struct pn_member **members, unsigned *me)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PN_SHARE_MAX; i++) {
		struct slot *slot = &registry->segment->slots[i];
		struct pn_member *member = &registry->members[n];

		if (!read_slot(slot, member) ||
		    (member->process != registry->process &&
		     !is_alive(member->process)))
			continue;
		if (slot == registry->slot)
			*me = n;
		n++;
	}
	*members = registry->members;
	return n;
}
