/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "tools/trace/trace_impl.h"

/* What zlib says about a read that brought less than asked for. */
static int gzip_error(struct pn_input *source)
{
	int code;

	gzerror(source->file, &code);
	switch (code) {
	case Z_OK:
	case Z_STREAM_END:
		return 0;
	case Z_ERRNO:
		return errno == EISDIR ? -EISDIR : -EIO;
	case Z_MEM_ERROR:
		return -ENOMEM;
	default: /* damaged, or cut short */
		return -EBADMSG;
	}
}

static void move_to_front(struct pn_input *source)
{
	memmove(source->buffer, source->buffer + source->at,
		source->end - source->at);
	source->offset += source->at;
	source->end -= source->at;
	source->at = 0;
}

static void fill(struct pn_input *source)
{
	unsigned room = (unsigned)(PN_INPUT_BYTES - source->end);
	int n = gzread(source->file, source->buffer + source->end, room);

	if (n > 0)
		source->end += (size_t)n;
	if (n == (int)room)
		return;
	source->ended = true;
	source->error = gzip_error(source);
}

long pn_input_need(struct pn_input *source, size_t want)
{
	pn_assert(want <= PN_INPUT_BYTES);
	if (source->end - source->at < want && !source->ended) {
		move_to_front(source);
		fill(source);
	}
	if (source->at == source->end)
		return source->error;
	return (long)(source->end - source->at);
}
