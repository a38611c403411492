/* SPDX-License-Identifier: BSD-2-Clause */
/* Names by service, for example a port number, instead of the address of a
 * device. An endpoint that was opened with a service holds two abstract
 * sockets, to which nobody connects. The name of the first is the service: a
 * second endpoint cannot bind it. The name of the second is the service and the
 * endpoint's name: other processes find it in /proc/net/unix. Nothing is left
 * behind, however the process ends. This works for one host and one user, as
 * `soft` does; other devices have no such names. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "provider/provider.h"

/* Characters. With the rest of the label they fit into a sun_path. */
#define SERVICE_MAX 16

bool pn_fi_is_service(const struct pn_fi_name *name)
{
	return name->len == PN_FI_BY_SERVICE &&
	       memchr(name->data, 0, sizeof(name->data)) && name->data[0];
}

const char *pn_fi_service_text(const struct pn_fi_name *name)
{
	return (const char *)name->data;
}

int pn_fi_service_name(const char *service, struct pn_fi_name *out)
{
	size_t len = strlen(service);

	if (!len || len > SERVICE_MAX || strpbrk(service, "/ \n"))
		return -FI_EINVAL;
	*out = (struct pn_fi_name){ .len = PN_FI_BY_SERVICE };
	memcpy(out->data, service, len);
	return 0;
}

/* "pinion-fi/USER/SERVICE", then "/NAME" in hexadecimal if `name` is given.
 * Returns the length; -1: too long. */
static int write_label(char *out, size_t room, const struct pn_fi_name *service,
		       const struct pn_fi_name *name)
{
	int n = snprintf(out, room, "pinion-fi/%u/%s%s", (unsigned)getuid(),
			 pn_fi_service_text(service), name ? "/" : "");

	for (int i = 0; name && i < name->len && n < (int)room; i++)
		n += snprintf(out + n, room - (size_t)n, "%02x", name->data[i]);
	return n < (int)room ? n : -1;
}

/* --- publishing ----------------------------------------------------------- */

static int bind_label(const struct pn_fi_name *service,
		      const struct pn_fi_name *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int len = write_label(at.sun_path + 1, sizeof(at.sun_path) - 1, service,
			      name);
	int fd, ret;

	if (len < 0)
		return -FI_EADDRNOTAVAIL;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&at,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			     (size_t)len))) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

int pn_fi_publish(const struct pn_fi_name *service,
		  const struct pn_fi_name *name, int service_fds[2])
{
	service_fds[0] = bind_label(service, NULL);
	if (service_fds[0] < 0)
		return service_fds[0];
	service_fds[1] = bind_label(service, name);
	if (service_fds[1] >= 0)
		return 0;
	close(service_fds[0]);
	service_fds[0] = -1;
	return service_fds[1];
}

void pn_fi_unpublish(const int service_fds[2])
{
	for (int i = 0; i < 2; i++)
		if (service_fds[i] >= 0)
			close(service_fds[i]);
}

/* --- resolving ------------------------------------------------------------ */

static int digit_of(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

static int read_name(const char *hex, struct pn_fi_name *out)
{
	*out = (struct pn_fi_name){ 0 };
	for (; out->len < sizeof(out->data); hex += 2) {
		int high = digit_of(hex[0]);
		int low = high < 0 ? -1 : digit_of(hex[1]);

		if (low < 0)
			break;
		out->data[out->len++] = (uint8_t)(high << 4 | low);
	}
	return out->len && (*hex == '\n' || !*hex) ? 0 : -FI_EINVAL;
}

/* The kernel's list shows abstract names with a leading '@'. */
int pn_fi_resolve(const struct pn_fi_name *service, struct pn_fi_name *out)
{
	FILE *list = fopen("/proc/net/unix", "re");
	char label[128] = "@", *line = NULL, *found;
	int ret = -FI_EHOSTUNREACH;
	size_t room = 0;
	int n = write_label(label + 1, sizeof(label) - 2, service, NULL);

	if (!list)
		return ret;
	if (n > 0)
		label[n + 1] = '/';
	while (n > 0 && ret && getline(&line, &room, list) > 0) {
		found = strstr(line, label);
		if (found)
			ret = read_name(found + n + 2, out);
	}
	free(line);
	fclose(list);
	return ret ? -FI_EHOSTUNREACH : 0;
}

/* --- hosts ---------------------------------------------------------------- */

static bool is_local(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool mine = fd >= 0 && !bind(fd, at->ai_addr, at->ai_addrlen);

	if (fd >= 0)
		close(fd);
	return mine;
}

bool pn_fi_is_this_host(const char *node, uint64_t flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *all, *at;
	bool mine = false;

	if (flags & FI_NUMERICHOST)
		hints.ai_flags = AI_NUMERICHOST;
	if (getaddrinfo(node, NULL, &hints, &all))
		return false;
	for (at = all; at && !mine; at = at->ai_next)
		mine = is_local(at);
	freeaddrinfo(all);
	return mine;
}
