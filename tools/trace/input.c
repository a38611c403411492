/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "tools/trace/trace_impl.h"

/* The errno for a short read of zlib. */
static int gzip_error(struct pn_input *input)
{
	int code;

	gzerror(input->file, &code);
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

static void move_to_front(struct pn_input *input)
{
	memmove(input->buffer, input->buffer + input->at,
		input->end - input->at);
	input->offset += input->at;
	input->end -= input->at;
	input->at = 0;
}

static void fill(struct pn_input *input)
{
	unsigned capacity = (unsigned)(PN_INPUT_BYTES - input->end);
	int n = gzread(input->file, input->buffer + input->end, capacity);

	if (n > 0)
		input->end += (size_t)n;
	if (n == (int)capacity)
		return;
	input->ended = true;
	input->error = gzip_error(input);
}

long pn_input_need(struct pn_input *input, size_t want)
{
	pn_assert(want <= PN_INPUT_BYTES);
	if (input->end - input->at < want && !input->ended) {
		move_to_front(input);
		fill(input);
	}
	if (input->at == input->end)
		return input->error;
	return (long)(input->end - input->at);
}
