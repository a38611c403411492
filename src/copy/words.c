/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words of host memory that the GPU reads and writes in the order of a stream:
 * a stream waits for a word of a request (request.c), and writes one behind a
 * copy of registered memory (registered.c).
 *
 * The value of a word only grows. So a word can be used again although a stream
 * has not looked at it yet: a use waits for, or writes, one more than before.
 *
 * When the CUDA context goes, so does the registration; the page stays, and is
 * registered again in the next one. Words in use keep their places.
 */
#include "copy/copy_impl.h"

static void deregister_words(struct pn_copier *copier)
	PN_REQUIRES(&copier->growing)
{
	if (copier->words_registered)
		pn_cache_deregister(copier->attr.cache, &copier->words_mr);
	copier->words_registered = false;
}

static void register_words(struct pn_copier *copier)
	PN_REQUIRES(&copier->growing)
{
	struct pn_mr *mr = &copier->words_mr;

	deregister_words(copier);
	/* Refused: the driver still has it. */
	if (pn_device_still_registered(copier->attr.device, mr))
		return;
	*mr = (struct pn_mr){ .addr = mr->addr,
			      .len = PN_PAGE_BYTES,
			      .access = PINION_ACCESS_LOCAL_WRITE };
	copier->words_generation = atomic_load(&copier->generation);
	copier->words_registered =
		!pn_cache_register_own(copier->attr.cache, mr);
}

static void map_words(struct pn_copier *copier) PN_REQUIRES(&copier->growing)
{
	struct pn_mr *mr = &copier->words_mr;

	if (pn_pages_map(PN_PAGE_BYTES, NULL, &mr->addr))
		return;
	register_words(copier);
	if (!copier->words_registered) {
		pn_pages_unmap(mr->addr, PN_PAGE_BYTES, NULL);
		mr->addr = NULL;
	}
	pn_lock(&copier->lock);
	copier->words = mr->addr;
	pn_unlock(&copier->lock);
}

/* Makes the words, or registers them again, unless that has been done or
 * another thread does it. */
static void words_open(struct pn_copier *copier)
{
	if (!copier->cu->stream_wait_value32 ||
	    !copier->cu->stream_write_value32 || !pn_try_lock(&copier->growing))
		return;
	if (!copier->words_mr.addr)
		map_words(copier);
	else if (copier->words_generation != atomic_load(&copier->generation))
		register_words(copier);
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

/* A free word that the driver knows. */
static _Atomic uint32_t *take_known(struct pn_copier *copier,
				    pn_cu_deviceptr *at)
{
	_Atomic uint32_t *word = find_free(copier);

	if (word &&
	    copier->cu->mem_host_get_device_pointer(at, (void *)word, 0)) {
		pn_copy_word_return(copier, word);
		word = NULL;
	}
	return word;
}

_Atomic uint32_t *pn_copy_word_take(struct pn_copier *copier,
				    pn_cu_deviceptr *at)
{
	_Atomic uint32_t *word = take_known(copier, at);

	if (pn_likely(word))
		return word;
	pn_copy_check_generation(copier);
	words_open(copier);
	return take_known(copier, at);
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
	pn_lock(&copier->growing);
	deregister_words(copier);
	pn_unlock(&copier->growing);
	if (!pn_device_still_registered(copier->attr.device, &copier->words_mr))
		pn_pages_unmap(copier->words, PN_PAGE_BYTES, NULL);
}
