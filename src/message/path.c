/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/path.h"

#include "message/reuse.h"

enum pn_path pn_path_choose(struct pn_reuse *reuse,
			    const struct pn_device *device, const void *buf,
			    size_t len, bool write)
{
	enum pn_reuse_way way = write ? PN_REUSE_PUT : PN_REUSE_GET;

	if (pn_reuse_wants(reuse, way, buf, len))
		return PN_PATH_PINNED;
	return write && pn_path_inlines(device, len) ? PN_PATH_INLINE
						     : PN_PATH_LANDED;
}
