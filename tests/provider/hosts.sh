# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# hosts A B LINK -- two network namespaces (tests/namespaces) become the hosts of
# Open MPI: from then on `on_hosts DEVICE RANKS PINION ARGUMENTS...` runs `pinion
# mpirun ARGUMENTS` in A, with half of RANKS in B, over DEVICE, and `sent_bytes`
# prints how many bytes B has sent to A over LINK. In B everything runs under the
# command $in_b. Needs a folder $work.
in_b=env

hosts() {
	host_a=$1 host_b=$2 host_link=$3
	cat >"$work/agent" <<-EOF
		#!/bin/bash
		# agent HOST COMMAND...
		shift
		exec ip netns exec $host_b unshare --uts \$IN_B bash -c \\
			'hostname $host_b; exec bash -c "\$*"' - "\$@"
	EOF
	chmod +x "$work/agent"
}

on_hosts() {
	local device=$1 each=$(($2 / 2)) ranks=$2 pinion=$3

	shift 3
	IN_B=$in_b PINION_DEVICE=$device ip netns exec "$host_a" unshare --uts \
		bash -c 'hostname "$0"; exec "$@"' "$host_a" \
		"$pinion" mpirun --mca plm_rsh_agent "$work/agent" \
		--mca oob_tcp_if_include "$host_link" \
		--host "$host_a:$each,$host_b:$each" -n "$ranks" "$@"
}

sent_bytes() {
	ip -n "$host_a" -s link show "$host_link" |
		awk 'seen { print $1; exit } /RX:/ { seen = 1 }'
}
