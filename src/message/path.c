/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/path.h"

#include "base/range.h"

static double register_ns(const struct pn_costs *costs, const void *buf,
			  size_t len)
{
	return costs->register_ns +
	       costs->register_page_ns *
		       (double)pn_range_npages((uintptr_t)buf, len);
}

/* Multiplicative: neighbours go far apart. */
static unsigned bucket_of(uintptr_t page)
{
	return (unsigned)((page >> PN_PAGE_SHIFT) *
				  UINT64_C(0x9e3779b97f4a7c15) >>
			  54) &
	       (PN_PATH_BUFFERS - 1);
}

/* Whether this buffer has been copied often enough, or once would be too much.
 */
static bool has_paid(struct pn_paths *paths, const struct pn_costs *costs,
		     const void *buf, size_t len)
{
	uintptr_t page = (uintptr_t)buf & ~(PN_PAGE_BYTES - 1);
	double copy = (double)len * costs->copy_byte_ns;
	double price = register_ns(costs, buf, len);
	unsigned i = bucket_of(page);

	if (paths->buffers[i].page != page) {
		paths->buffers[i].page = page;
		paths->buffers[i].copied_ns = 0;
	}
	if (paths->buffers[i].copied_ns + copy > price) {
		/* When the registration is lost, it begins anew. */
		paths->buffers[i].copied_ns = 0;
		return true;
	}
	paths->buffers[i].copied_ns += copy;
	return false;
}

enum pn_path pn_path_choose(struct pn_paths *paths, struct pn_cache *cache,
			    const struct pn_device *device, const void *buf,
			    size_t len, bool write)
{
	if (len > PN_PATH_SMALL && (pn_cache_holds(cache, buf) ||
				    has_paid(paths, &device->costs, buf, len)))
		return PN_PATH_PINNED;
	return write && pn_path_inlines(device, len) ? PN_PATH_INLINE
						     : PN_PATH_LANDED;
}
