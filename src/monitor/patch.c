/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes the entries of libc jump to the hooks.
 *
 * The entries are those of libc.so.6 itself, whatever else defines a symbol of
 * that name: libc's malloc calls them directly, and an interposed munmap ends
 * there. An entry that starts with a jump already belongs to another library;
 * pinion's hook calls the target of that jump from then on. The first bytes of
 * each patched entry are saved, so that checking whether the patch is still
 * there compares a few bytes.
 *
 * Code is replaced only while one thread runs. An entry is never restored: it
 * is not known when the last thread has left a hook.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "config/option.h"
#include "monitor/monitor_impl.h"

/* A foreign patch changes at least one of these. */
#define SAVED_BYTES 16

static struct entry {
	uint8_t *addr; /* NULL: libc has no such function */
	uint8_t saved[SAVED_BYTES];
	bool chained;
} entries[PN_NENTRIES];

static bool installed;

static int refuse(struct pn_why *why, const char *what, const char *name)
{
	snprintf(why->text, sizeof(why->text), what, name);
	return -EOPNOTSUPP;
}

static int find_entry(void *libc, enum pn_entry e, struct pn_why *why)
{
	const char *name = pn_hooks[e].name;
	const ElfW(Sym) *symbol = NULL;
	void *addr = dlsym(libc, name);
	Dl_info info;

	if (!addr && (pn_hooks[e].flags & PN_HOOK_OPTIONAL))
		return 0;
	if (!addr)
		return refuse(why, "libc has no %s", name);
	if (!dladdr1(addr, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
		return refuse(why, "the size of libc's %s is unknown", name);
	if (symbol->st_size < PN_JUMP_MAX_BYTES &&
	    (pn_hooks[e].flags & PN_HOOK_OPTIONAL))
		return 0;
	if (symbol->st_size < PN_JUMP_MAX_BYTES)
		return refuse(why, "libc's %s is too short to patch", name);
	entries[e].addr = addr;
	return 0;
}

static int find_entries(struct pn_why *why)
{
	void *libc = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_LAZY);
	void **curbrk = dlsym(RTLD_DEFAULT, "__curbrk");
	int ret = 0;

	if (!libc || !curbrk)
		return refuse(why, "%s is not the C library here", "glibc");
	pn_hook_set_curbrk(curbrk);
	for (int e = 0; !ret && e < PN_NENTRIES; e++)
		ret = find_entry(libc, (enum pn_entry)e, why);
	dlclose(libc);
	return ret;
}

static void save_bytes(struct entry *entry)
{
	memcpy(entry->saved, entry->addr, SAVED_BYTES);
}

/* Whether an entry that jumps to `target` (NULL: libc's own code) gets a hook.
 */
static bool should_patch(enum pn_entry e, void *target)
{
	unsigned flags = pn_hooks[e].flags;

	if (target == (void *)pn_hooks[e].function)
		return false;
	return !(flags & (target ? PN_HOOK_NO_CHAIN : PN_HOOK_FOREIGN_ONLY));
}

static int install_one(enum pn_entry e, struct pn_why *why)
{
	struct entry *entry = &entries[e];
	uint8_t code[PN_JUMP_MAX_BYTES];
	void *target = pn_jump_decode(entry->addr);
	size_t len;

	if (should_patch(e, target)) {
		pn_hook_chain(e, target);
		entry->chained = target != NULL;
		len = pn_jump_encode(entry->addr, (void *)pn_hooks[e].function,
				     code);
		if (pn_jump_write(entry->addr, code, len))
			return refuse(why, "the code of %s cannot be written",
				      pn_hooks[e].name);
	}
	save_bytes(entry);
	return 0;
}

int pn_patch_install(struct pn_why *why)
{
	int ret = pn_monitor_keep_loaded(why);

	if (!ret)
		ret = find_entries(why);
	pn_jump_begin();
	for (int e = 0; !ret && e < PN_NENTRIES; e++)
		if (entries[e].addr)
			ret = install_one((enum pn_entry)e, why);
	pn_jump_end();
	installed = !ret;
	return ret;
}

bool pn_patch_installed(void)
{
	return installed;
}

/* May read bytes that pn_patch_accept() is writing: they look changed, and the
 * caller looks again under the monitor's lock. */
static bool changed(enum pn_entry e)
{
	return entries[e].addr &&
	       memcmp(entries[e].addr, entries[e].saved, SAVED_BYTES);
}

bool pn_patch_intact(void)
{
	for (int e = 0; e < PN_NENTRIES; e++)
		if (changed((enum pn_entry)e))
			return false;
	return true;
}

bool pn_patch_break_changed(void)
{
	return changed(PN_ENTRY_BRK) || changed(PN_ENTRY_SBRK);
}

void pn_patch_accept(void)
{
	for (int e = 0; e < PN_NENTRIES; e++)
		if (entries[e].addr)
			save_bytes(&entries[e]);
}

unsigned pn_patch_chained(void)
{
	unsigned n = 0;

	for (int e = 0; e < PN_NENTRIES; e++)
		n += entries[e].chained;
	return n;
}
