/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the adapter and the port that a spec names, and their IP address: binds
 * an rdma_cm id to each address of the machine until one is on this port.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "device/verbs/verbs_impl.h"

/* --- the IP address ------------------------------------------------------- */

static bool is_on_port(const struct pn_verbs_device *dev,
		       const struct rdma_cm_id *id)
{
	return id->verbs && id->port_num == dev->port &&
	       !strcmp(ibv_get_device_name(id->verbs->device), dev->name);
}

static bool is_wanted(const struct pn_verbs_device *dev,
		      const struct sockaddr *addr)
{
	char text[INET6_ADDRSTRLEN];
	const void *ip =
		addr->sa_family == AF_INET
			? (const void *)&(
				  (const struct sockaddr_in *)(const void *)
					  addr)
				  ->sin_addr
			: (const void *)&(
				  (const struct sockaddr_in6 *)(const void *)
					  addr)
				  ->sin6_addr;

	return !dev->params.address[0] ||
	       (inet_ntop(addr->sa_family, ip, text, sizeof(text)) &&
		!strcmp(text, dev->params.address));
}

static void set_address(struct pn_verbs_device *dev,
			const struct sockaddr *addr)
{
	struct pn_verbs_address *to = &dev->address;

	to->family = addr->sa_family;
	if (addr->sa_family == AF_INET) {
		struct sockaddr_in v4;

		memcpy(&v4, addr, sizeof(v4));
		memcpy(to->ip, &v4.sin_addr, 4);
	} else {
		struct sockaddr_in6 v6;

		memcpy(&v6, addr, sizeof(v6));
		memcpy(to->ip, &v6.sin6_addr, 16);
		to->scope = v6.sin6_scope_id;
	}
}

/* Binds dev->service.listener to the address if it is on the port. */
static bool bind_address(struct pn_verbs_device *dev, struct sockaddr *addr)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(dev->service.cm, &id, NULL, RDMA_PS_TCP))
		return false;
	if (!rdma_bind_addr(id, addr) && is_on_port(dev, id)) {
		dev->service.listener = id;
		set_address(dev, addr);
		return true;
	}
	rdma_destroy_id(id);
	return false;
}

/* IPv4 first: the peer may have no IPv6. */
static bool find_address(struct pn_verbs_device *dev)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct ifaddrs *all, *a;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (unsigned f = 0; f < PN_ARRAY_LEN(families); f++)
		for (a = all; a && !found; a = a->ifa_next)
			found = a->ifa_addr &&
				a->ifa_addr->sa_family == families[f] &&
				(a->ifa_flags & IFF_UP) &&
				!(a->ifa_flags & IFF_LOOPBACK) &&
				is_wanted(dev, a->ifa_addr) &&
				bind_address(dev, a->ifa_addr);
	freeifaddrs(all);
	return found;
}

/* --- the adapter ---------------------------------------------------------- */

static bool is_in_sysfs(const char *name, const char *what)
{
	char path[160];

	snprintf(path, sizeof(path), "/sys/class/infiniband%s%s%s",
		 name ? "/" : "", name ? name : "", what);
	return !access(path, F_OK);
}

static int report_no_device(const char *name)
{
	if (!is_in_sysfs(NULL, ""))
		pn_error("verbs: no RDMA adapter here: its driver is not "
			 "loaded, or this machine has none (`modprobe rdma_rxe "
			 "&& rdma link add rxe0 type rxe netdev eth0` makes a "
			 "software one)");
	else if (access("/dev/infiniband", F_OK))
		pn_error("verbs: the kernel has RDMA adapters, but "
			 "/dev/infiniband is not there: `modprobe ib_uverbs "
			 "rdma_ucm`, or give the container that folder");
	else
		pn_error("verbs: no RDMA adapter '%s' that can be opened; "
			 "`pinion info` lists the adapters",
			 name);
	return -ENODEV;
}

/* libibverbs does not report that it may not open the device file. */
static bool may_not_open(const struct ibv_device *device)
{
	char path[160];

	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	return !access(path, F_OK) && access(path, R_OK | W_OK);
}

static int report_open_error(const struct ibv_device *device, int error)
{
	if (error == EACCES || error == EPERM || may_not_open(device)) {
		pn_error("verbs: no permission to open %s: the files in "
			 "/dev/infiniband must be readable and writable",
			 device->name);
		return -EACCES;
	}
	pn_error("verbs: cannot open %s: %s; are the files in /dev/infiniband "
		 "there (`modprobe ib_uverbs`, in a container --device)?",
		 device->name, strerror(error));
	return -ENODEV;
}

static int open_cm(struct pn_verbs_device *dev)
{
	int error;

	if (dev->service.cm)
		return 0;
	dev->service.cm = rdma_create_event_channel();
	if (dev->service.cm)
		return 0;
	error = errno;
	pn_error("verbs: no connection manager: %s; `modprobe rdma_ucm`, and "
		 "/dev/infiniband/rdma_cm must be readable and writable",
		 strerror(error));
	return error == EACCES || error == EPERM ? -EACCES : -ENODEV;
}

/* Whether the port works. `asked`: the spec names it, so log errors. */
static int try_port(struct pn_verbs_device *dev, uint8_t port, bool asked)
{
	dev->port = port;
	if (ibv_query_port(dev->context, port, &dev->port_attr)) {
		if (asked)
			pn_error("verbs: %s has no port %u", dev->name, port);
		return -ENODEV;
	}
	if (dev->port_attr.state != IBV_PORT_ACTIVE) {
		if (asked)
			pn_error("verbs: port %u of %s is %s: see `rdma link` "
				 "(is the cable in, the interface up?)",
				 port, dev->name,
				 ibv_port_state_str(dev->port_attr.state));
		return -ENODEV;
	}
	if (find_address(dev))
		return 0;
	if (asked)
		pn_error("verbs: port %u of %s has no IP address%s%s, which "
			 "rdma_cm connects by: `ip address add` to its network "
			 "interface (InfiniBand: that of IPoIB)",
			 port, dev->name, dev->params.address[0] ? " " : "",
			 dev->params.address);
	return -EADDRNOTAVAIL;
}

static void query(struct pn_verbs_device *dev)
{
	struct ibv_device_attr_ex more = { 0 };

	dev->is_iwarp =
		dev->context->device->transport_type == IBV_TRANSPORT_IWARP;
	dev->is_software = !is_in_sysfs(dev->name, "/device/vendor");
	dev->software_fences = dev->is_iwarp || dev->is_software;
	if (!ibv_query_device_ex(dev->context, NULL, &more))
		dev->odp_caps =
			more.odp_caps.general_caps & IBV_ODP_SUPPORT
				? more.odp_caps.per_transport_caps.rc_odp_caps
				: 0;
}

static int try_device(struct pn_verbs_device *dev, struct ibv_device *device,
		      unsigned port, bool asked)
{
	int ret = -ENODEV;

	snprintf(dev->name, sizeof(dev->name), "%s",
		 ibv_get_device_name(device));
	dev->context = ibv_open_device(device);
	if (!dev->context)
		return asked ? report_open_error(device, errno) : -ENODEV;
	if (ibv_query_device(dev->context, &dev->attr))
		ret = -EIO;
	else if (port)
		ret = try_port(dev, (uint8_t)port, asked);
	for (unsigned p = 1; ret && !port && p <= dev->attr.phys_port_cnt; p++)
		ret = try_port(dev, (uint8_t)p,
			       asked && p == dev->attr.phys_port_cnt);
	if (!ret) {
		query(dev);
		return 0;
	}
	ibv_close_device(dev->context);
	dev->context = NULL;
	return ret;
}

static int parse_name(const char *name, char *device, unsigned *port)
{
	size_t len = strcspn(name, "/");
	char *end = NULL;

	*port = name[len] ? (unsigned)strtoul(name + len + 1, &end, 10) : 0;
	if (len >= PN_VERBS_DEVICE_NAME ||
	    (name[len] && (*end || !*port || *port > UINT8_MAX))) {
		pn_error("verbs: '%.64s' is no adapter and port: try "
			 "verbs:rxe0/1",
			 name);
		return -EINVAL;
	}
	memcpy(device, name, len);
	device[len] = 0;
	return 0;
}

static int choose(struct pn_verbs_device *dev, struct ibv_device **list,
		  const char *name, unsigned port)
{
	int ret = -ENODEV;
	bool found = false;

	for (unsigned i = 0; list && list[i] && ret; i++) {
		if (name[0] && strcmp(name, ibv_get_device_name(list[i])))
			continue;
		found = true;
		/* If none works, the last one logs its error. */
		ret = try_device(dev, list[i], port, name[0] || !list[i + 1]);
	}
	return found ? ret : report_no_device(name);
}

int pn_verbs_find(struct pn_verbs_device *dev, const char *name)
{
	char device[PN_VERBS_DEVICE_NAME];
	struct ibv_device **list;
	unsigned port;
	int ret = parse_name(name, device, &port);

	if (ret)
		return ret;
	list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		ret = report_no_device(device);
	if (!ret)
		ret = open_cm(dev);
	if (!ret)
		ret = choose(dev, list, device, port);
	if (list)
		ibv_free_device_list(list);
	return ret;
}
