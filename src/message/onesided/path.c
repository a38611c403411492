/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/onesided/path.h"

#include "message/protocol/reuse.h"

enum pn_path pn_path_choose(struct pn_reuse *reuse,
			    const struct pn_device *device, const void *buf,
			    size_t len, bool write)
{
	enum pn_reuse_kind kind = write ? PN_REUSE_PUT : PN_REUSE_GET;

	if (pn_reuse_decide(reuse, kind, buf, len))
		return PN_PATH_PINNED;
	return write && pn_path_inlines(device, len) ? PN_PATH_INLINE
						     : PN_PATH_BOUNCED;
}
