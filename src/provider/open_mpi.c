/* SPDX-License-Identifier: BSD-2-Clause */
#include "provider/open_mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"

/* Bits of mtl/ofi's tags. */
#define SYNC_SEND     (UINT64_C(1) << 32)
#define SYNC_SEND_ACK (UINT64_C(1) << 33)

#define VERSION_BYTES 256 /* MPI_MAX_LIBRARY_VERSION_STRING of Open MPI */

/* Whether the code at an address belongs to a library of this name. */
static bool is_in(const void *address, const char *library)
{
	Dl_info info;

	return dladdr(address, &info) && info.dli_fname &&
	       strstr(info.dli_fname, library);
}

/* libmpi itself, which need not be visible to all libraries. Stays open: it is
 * the program's. NULL: there is none. */
static void *open_mpi(void)
{
	return dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
}

/* "Open MPI v4.1.4, package: ..." is 40104; 0: not known. MPI allows this call
 * before MPI_Init(). */
static int version_of(void *mpi)
{
	int (*get)(char *version, int *len) = NULL;
	char text[VERSION_BYTES] = "";
	int major, minor, release, len;

	*(void **)&get = dlsym(mpi, "MPI_Get_library_version");
	if (!get || get(text, &len) ||
	    sscanf(text, "Open MPI v%d.%d.%d", &major, &minor, &release) != 3)
		return 0;
	return major * 10000 + minor * 100 + release;
}

/* --- acknowledgements ----------------------------------------------------- */

bool pn_open_mpi_forgets_acks(const void *caller)
{
	void *mpi = is_in(caller, "mca_mtl_ofi") ? open_mpi() : NULL;

	return mpi && version_of(mpi) / 10000 == 4;
}

bool pn_open_mpi_ack(const struct pinion_completion *received, uint64_t *tag)
{
	if (!(received->flags & PINION_COMPLETION_DATA) ||
	    (received->tag & (SYNC_SEND | SYNC_SEND_ACK)) != SYNC_SEND)
		return false;
	*tag = received->tag ^ SYNC_SEND ^ SYNC_SEND_ACK;
	return true;
}

/* --- displaced buffers ---------------------------------------------------- */

/* Objects of MPI, as Open MPI passes them. */
typedef void *mpi_type;
typedef intptr_t mpi_aint;

typedef int isend_init_fn(const void *buf, size_t count, mpi_type type, int to,
			  int tag, int mode, void *comm, void **request);

/* The beginning of Open MPI's table of pml functions, mca_pml: the same from
 * 4.0.0 to 4.1.4. */
struct pml {
	void *others[9];
	isend_init_fn *isend_init;
};

static struct {
	isend_init_fn *isend_init; /* pml/cm's */
	int (*true_extent)(mpi_type type, mpi_aint *lb, mpi_aint *extent);
	int (*displaced)(int nblocks, int blocklen, const mpi_aint *displs,
			 mpi_type type, mpi_type *out);
	int (*commit)(mpi_type *type);
	int (*free)(mpi_type *type);
} mpi_calls;

/* The request keeps its own reference to the type. */
static int isend_init(const void *buf, size_t count, mpi_type type, int to,
		      int tag, int mode, void *comm, void **request)
{
	mpi_aint lb = 0, extent, back;
	mpi_type moved;
	int ret;

	if (mpi_calls.true_extent(type, &lb, &extent) || !lb)
		return mpi_calls.isend_init(buf, count, type, to, tag, mode,
					    comm, request);
	back = -lb;
	ret = mpi_calls.displaced(1, 1, &back, type, &moved);
	if (ret)
		return ret;
	ret = mpi_calls.commit(&moved);
	if (!ret)
		ret = mpi_calls.isend_init((const char *)buf + lb, count, moved,
					   to, tag, mode, comm, request);
	mpi_calls.free(&moved);
	return ret;
}

static bool find_calls(void *mpi)
{
	*(void **)&mpi_calls.true_extent =
		dlsym(mpi, "PMPI_Type_get_true_extent");
	*(void **)&mpi_calls.displaced =
		dlsym(mpi, "PMPI_Type_create_hindexed_block");
	*(void **)&mpi_calls.commit = dlsym(mpi, "PMPI_Type_commit");
	*(void **)&mpi_calls.free = dlsym(mpi, "PMPI_Type_free");
	return mpi_calls.true_extent && mpi_calls.displaced &&
	       mpi_calls.commit && mpi_calls.free;
}

void pn_open_mpi_repair_sends(const void *caller)
{
	void *mpi = is_in(caller, "mca_mtl_ofi") ? open_mpi() : NULL;
	struct pml *pml = mpi ? dlsym(mpi, "mca_pml") : NULL;
	int version = pml ? version_of(mpi) : 0;

	if (version < 40000 || version > 40104 ||
	    !is_in((const void *)(uintptr_t)pml->isend_init, "mca_pml_cm") ||
	    !find_calls(mpi))
		return;
	mpi_calls.isend_init = pml->isend_init;
	pml->isend_init = isend_init;
	pn_debug("persistent sends of Open MPI %d.%d.%d are repaired",
		 version / 10000, version / 100 % 100, version % 100);
}
