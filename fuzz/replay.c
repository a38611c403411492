/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay -- main() of the fuzz programs without libFuzzer: runs every named
 * file, and every file of every named folder, as an input. Ignores libFuzzer's
 * options (-runs=0). No input is an error.
 */
#include "fuzz.h"

#include <dirent.h>
#include <err.h>

static void run_file(const char *path)
{
	size_t size = 0, room = 0, got;
	uint8_t *data = NULL;
	FILE *file = fopen(path, "rb");

	if (!file)
		err(1, "%s", path);
	do {
		room += 65536;
		data = realloc(data, room);
		if (!data)
			err(1, "%s", path);
		got = fread(data + size, 1, room - size, file);
		size += got;
	} while (size == room);
	if (ferror(file))
		err(1, "%s", path);
	fclose(file);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
}

/* Returns the number of inputs. */
static unsigned run_path(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir(path);
	unsigned n = 0;

	if (!dir) {
		run_file(path);
		return 1;
	}
	while ((entry = readdir(dir))) {
		char *inside;

		if (entry->d_name[0] == '.')
			continue;
		if (asprintf(&inside, "%s/%s", path, entry->d_name) < 0)
			err(1, "%s", path);
		n += run_path(inside);
		free(inside);
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	unsigned n = 0;

	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			n += run_path(argv[i]);
	if (!n)
		errx(1, "no input to replay");
	printf("%u inputs replayed\n", n);
	return 0;
}
