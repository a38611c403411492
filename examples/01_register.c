/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 01_register -- register memory by hand, and pass its key to a peer.
 *
 * Opens a context on the default device (PINION_DEVICE selects another one),
 * registers a buffer so that peers may put to it and get from it, prints what
 * such a peer needs, and closes everything.
 *
 * 	cc 01_register.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/pinion.h>

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static void print_pinned(struct pinion_context *context)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	int ret = pinion_device_query(context, &info);

	if (ret)
		stop("pinion_device_query", ret);
	printf("%s: %zu bytes in %zu registrations\n", info.kind,
	       info.pinned_bytes, info.registrations);
}

int main(void)
{
	const size_t len = 64 << 10;
	struct pinion_registration *registration;
	struct pinion_registration_info info = { .size = sizeof(info) };
	struct pinion_context *context;
	char *buffer = malloc(len);
	int ret;

	if (!buffer)
		return EXIT_FAILURE;
	memset(buffer, 0, len);

	ret = pinion_open(NULL, &context);
	if (ret)
		stop("pinion_open", ret);

	ret = pinion_device_register(context, buffer, len,
				     PINION_ACCESS_REMOTE_READ |
					     PINION_ACCESS_REMOTE_WRITE,
				     &registration);
	if (ret)
		stop("pinion_device_register", ret);
	print_pinned(context);

	ret = pinion_registration_query(registration, &info);
	if (ret)
		stop("pinion_registration_query", ret);
	printf("others may reach %llu bytes with key %#llx\n",
	       (unsigned long long)info.len,
	       (unsigned long long)info.remote_key);

	pinion_device_deregister(registration);
	print_pinned(context);
	pinion_close(context);
	free(buffer);
	return EXIT_SUCCESS;
}
