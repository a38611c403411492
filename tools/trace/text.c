/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/text.h"

int pn_text_line(struct pn_trace *trace, struct line *line)
{
	struct pn_input *input = &trace->input;
	long n = pn_input_need(input, PN_LINE_MAX_BYTES);
	const char *start = (const char *)input->buffer + input->at;
	const char *newline;
	size_t len;

	if (n <= 0)
		return (int)n;
	trace->line++;
	len = n < PN_LINE_MAX_BYTES ? (size_t)n : PN_LINE_MAX_BYTES;
	newline = memchr(start, '\n', len);
	if (!newline && n >= PN_LINE_MAX_BYTES)
		return pn_trace_set_damaged(trace, "the line is longer than %d",
					    PN_LINE_MAX_BYTES);
	if (!newline && input->error)
		return input->error;
	len = newline ? (size_t)(newline - start) : len;
	input->at += len + !!newline;
	*line = (struct line){ start, start + len };
	if (len && line->end[-1] == '\r')
		line->end--;
	return 1;
}
