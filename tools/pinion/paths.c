/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/paths.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libpinion.so.0"
#define SITES	"libpinion-pmpi.so"
#define NO_PSM1 "no-psm/libpsm_infinipath.so.1"
#define NO_PSM2 "no-psm/libpsm2.so.2"

/* A path below the folder of this command. */
#define INSTALLED "../" PN_LIBDIR

static bool is_file(const char *path)
{
	struct stat s;

	return !stat(path, &s) && S_ISREG(s.st_mode);
}

bool pn_path_print(char out[PN_PATH_BYTES], const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(out, PN_PATH_BYTES, fmt, args);
	va_end(args);
	return n >= 0 && n < PN_PATH_BYTES;
}

static int find_command(char out[PN_PATH_BYTES])
{
	ssize_t n = readlink("/proc/self/exe", out, PN_PATH_BYTES - 1);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

static int find_folder(char out[PN_PATH_BYTES])
{
	int ret = find_command(out);
	char *slash = ret ? NULL : strrchr(out, '/');

	if (slash)
		*slash = '\0';
	return ret || slash ? ret : -ENOENT;
}

/* Provider and library, below the folder of libraries. */
static bool find_in(const char *bin, const char *lib, struct pn_paths *out)
{
	char provider[PN_PATH_BYTES];

	return pn_path_print(out->provider_dir, "%s/%s/libfabric", bin, lib) &&
	       pn_path_print(provider, "%s/" PN_PROVIDER, out->provider_dir) &&
	       pn_path_print(out->library, "%s/%s/" LIBRARY, bin, lib) &&
	       is_file(provider) && is_file(out->library);
}

/* Beside the command, or in the folder of internal programs. */
static int find_beside(const char *bin, const char *name,
		       char out[PN_PATH_BYTES])
{
	static const char *const places[] = { "", INSTALLED "/pinion/" };

	for (size_t i = 0; i < PN_ARRAY_LEN(places); i++)
		if (pn_path_print(out, "%s/%s%s", bin, places[i], name) &&
		    is_file(out))
			return 0;
	*out = '\0';
	return -ENOENT;
}

int pn_paths_find(struct pn_paths *out)
{
	char bin[PN_PATH_BYTES];
	int ret = find_command(out->command);

	if (!ret)
		ret = find_folder(bin);
	if (ret)
		return ret;
	find_beside(bin, SITES, out->sites);
	find_beside(bin, NO_PSM1, out->no_psm1);
	find_beside(bin, NO_PSM2, out->no_psm2);
	return find_in(bin, ".", out) || find_in(bin, INSTALLED, out) ? 0
								      : -ENOENT;
}

int pn_paths_traces(char out[PN_PATH_BYTES])
{
	/* In the sources beside the build folder, or installed. */
	static const char *const places[] = { "../tools/traces",
					      "../share/pinion/traces" };
	char bin[PN_PATH_BYTES];
	struct stat s;
	int ret = find_folder(bin);

	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(places); i++)
		if (pn_path_print(out, "%s/%s", bin, places[i]) &&
		    !stat(out, &s) && S_ISDIR(s.st_mode))
			return 0;
	return ret ? ret : -ENOENT;
}

int pn_paths_program(const char *name, char out[PN_PATH_BYTES])
{
	char bin[PN_PATH_BYTES];
	int ret = find_folder(bin);

	return ret ? ret : find_beside(bin, name, out);
}
