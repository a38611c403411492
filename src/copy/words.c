/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words of host memory that the GPU reads and writes in the order of a stream:
 * a stream waits for a word of a request (request.c), and writes one behind a
 * copy of registered memory (registered.c).
 *
 * The value of a word only grows. So a word can be used again although a stream
 * has not looked at it yet: a use waits for, or writes, one more than before.
 */
#include "copy/copy_impl.h"

static void words_open(struct pn_copier *copier)
{
	struct pn_mr *mr = &copier->words_mr;

	if (pn_likely(mr->addr) || !copier->cu->stream_wait_value32 ||
	    !copier->cu->stream_write_value32 || !pn_try_lock(&copier->growing))
		return;
	*mr = (struct pn_mr){ .len = PN_PAGE_BYTES,
			      .access = PINION_ACCESS_LOCAL_WRITE };
	if (!pn_pages_map(mr->len, NULL, &mr->addr) &&
	    pn_cache_register_own(copier->attr.cache, mr)) {
		pn_pages_unmap(mr->addr, mr->len, NULL);
		mr->addr = NULL;
	}
	pn_lock(&copier->lock);
	copier->words = mr->addr;
	pn_unlock(&copier->lock);
	pn_unlock(&copier->growing);
}

static _Atomic uint32_t *find_free(struct pn_copier *copier)
{
	_Atomic uint32_t *found = NULL;

	pn_lock(&copier->lock);
	for (unsigned i = 0; copier->words && i < PN_COPY_NWORDS; i++)
		if (!copier->word_used[i]) {
			copier->word_used[i] = true;
			found = &copier->words[i];
			break;
		}
	pn_unlock(&copier->lock);
	return found;
}

_Atomic uint32_t *pn_copy_word_take(struct pn_copier *copier,
				    pn_cu_deviceptr *at)
{
	_Atomic uint32_t *word;

	words_open(copier);
	word = find_free(copier);
	if (word &&
	    copier->cu->mem_host_get_device_pointer(at, (void *)word, 0)) {
		pn_copy_word_return(copier, word);
		word = NULL;
	}
	return word;
}

void pn_copy_word_return(struct pn_copier *copier, _Atomic uint32_t *word)
{
	pn_lock(&copier->lock);
	copier->word_used[word - copier->words] = false;
	pn_unlock(&copier->lock);
}

void pn_copy_words_close(struct pn_copier *copier)
{
	if (!copier->words)
		return;
	pn_cache_deregister(copier->attr.cache, &copier->words_mr);
	pn_pages_unmap(copier->words, PN_PAGE_BYTES, NULL);
}
