// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Socket filters on the daemon's netlink sockets. A message about a change that may concern a flow moves the epoch
 * here: before the kernel acknowledges the change, and however busy the daemon is. Such a message goes on to the
 * daemon, which moves the epoch once more and handles the details.
 */
#include "include/changes/commits.h"
#include "include/table/maps.h"
#include "include/changes/stations.h"
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/xfrm.h>

enum {
	SHUNT_WHOLE = -1, /* pass the whole message to the daemon */
	SHUNT_NONE = 0, /* drop the message */
	SHUNT_FILTER_PRIORITY = 0x5348, /* FILTER_PRIORITY in crates/shunt-bpf/src/attach.rs */
	SHUNT_PF_BRIDGE = 7,
	SHUNT_AF_INET = 2,
	SHUNT_AF_INET6 = 10,
};

static __always_inline int message_type(struct __sk_buff *skb)
{
	struct nlmsghdr message;

	return bpf_skb_load_bytes(skb, 0, &message, sizeof(message)) ? 0 : message.nlmsg_type;
}

/* Whether a route message concerns only a cached look-up. */
static __always_inline int is_cloned(struct __sk_buff *skb)
{
	struct rtmsg route;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &route, sizeof(route)) && route.rtm_flags & RTM_F_CLONED;
}

/* Whether a route message is about a default route. */
static __always_inline int is_default_route(struct __sk_buff *skb)
{
	struct rtmsg route;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &route, sizeof(route)) && !route.rtm_dst_len;
}

/* A message about a route, from the family on. Routes of IPv4 and IPv6 have the table first, then the destination. */
struct route_message {
	struct rtmsg route;
	struct rtattr table_attr;
	__u32 table;
	struct rtattr dst_attr;
};

/*
 * Records the change of a route. Returns whether a flow may depend on its destination. Other families may concern every
 * flow.
 */
static __always_inline int note_route(struct __sk_buff *skb)
{
	struct route_message message;
	__u32 at = NLMSG_HDRLEN + sizeof(message), family, bytes, bits;
	__u32 address[4] = {};
	__u64 hi, lo;

	if (bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &message, sizeof(message)))
		return 1;
	if (message.route.rtm_family == SHUNT_AF_INET)
		family = 4;
	else if (message.route.rtm_family == SHUNT_AF_INET6)
		family = 6;
	else
		return 1;
	bits = message.route.rtm_dst_len;
	bytes = family == 4 ? 4 : 16;
	if (!bits)
		return shunt_note_prefix(family, 0, 0, 0);
	if (message.table_attr.rta_type != RTA_TABLE || message.table_attr.rta_len != sizeof(struct rtattr) + 4 ||
	    message.dst_attr.rta_type != RTA_DST || message.dst_attr.rta_len != sizeof(struct rtattr) + bytes)
		return 1;
	if (family == 4 ? bpf_skb_load_bytes(skb, at, address, 4) : bpf_skb_load_bytes(skb, at, address, 16))
		return 1;
	shunt_address_words(family, address, &hi, &lo);
	return shunt_note_prefix(family, hi, lo, bits);
}

/* Whether a message is about a bridge. Link, neighbour and VLAN messages all begin with the family. */
static __always_inline int is_bridge_message(struct __sk_buff *skb)
{
	__u8 family;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &family, sizeof(family)) && family == SHUNT_PF_BRIDGE;
}

/*
 * Whether a link message reports a change that matters. No flow uses a new device yet. Wireless drivers report
 * scans and stations by messages with just a name and IFLA_WIRELESS.
 */
static __always_inline int link_changed(struct __sk_buff *skb)
{
	__u32 at = NLMSG_HDRLEN + sizeof(struct ifinfomsg);
	struct ifinfomsg link;
	struct rtattr attr;

	if (bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &link, sizeof(link)))
		return 1;
	if (link.ifi_change == 0xffffffff)
		return 0;
	if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)))
		return 1;
	at += RTA_ALIGN(attr.rta_len);
	return bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || attr.rta_type != IFLA_WIRELESS;
}

/*
 * Handles a bridge's neighbour message: ends the flows of the station. Returns whether to pass the message on, which is
 * so only if it cannot be read.
 */
static __always_inline int handle_station(struct __sk_buff *skb)
{
	struct {
		struct ndmsg neighbour;
		struct rtattr attr;
		__u8 mac[8];
	} message;
	__u32 bytes = sizeof(message) - 2;

	if (!bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &message, bytes) && message.attr.rta_type == NDA_LLADDR) {
		/* One of a device's own addresses, or a remote VXLAN endpoint. */
		if (message.neighbour.ndm_flags & NTF_SELF)
			return 0;
		if (shunt_note_station(message.mac))
			__sync_fetch_and_add(&shunt_control.station_moves, 1);
		return 0;
	}
	shunt_move_epoch();
	return 1;
}

/*
 * Whether a message is about a tc filter on a port, or in a block that several devices share. Not about one of Shunt's
 * own.
 */
static __always_inline int filter_concerns(struct __sk_buff *skb)
{
	struct tcmsg filter;

	if (bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &filter, sizeof(filter)))
		return 1;
	if (filter.tcm_info >> 16 == SHUNT_FILTER_PRIORITY)
		return 0;
	return filter.tcm_ifindex == (int)TCM_IFINDEX_MAGIC_BLOCK || shunt_port_of(filter.tcm_ifindex);
}

SEC("socket")
int shunt_route_changes(struct __sk_buff *skb)
{
	switch (message_type(skb)) {
	case RTM_NEWLINK:
		if (is_bridge_message(skb) || link_changed(skb))
			shunt_move_epoch();
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		if (is_bridge_message(skb) && !handle_station(skb))
			return SHUNT_NONE;
		break;
	case RTM_NEWROUTE:
		if (is_cloned(skb))
			return SHUNT_NONE;
		/* The history has default routes, also those that no flow depends on. */
		if (note_route(skb))
			shunt_move_epoch();
		else if (!is_default_route(skb))
			return SHUNT_NONE;
		break;
	case RTM_DELROUTE:
		if (is_cloned(skb))
			return SHUNT_NONE;
		/* IPv4 removes the route after the message, so the daemon has to look again in any case. */
		if (note_route(skb))
			shunt_move_epoch();
		break;
	case RTM_NEWTFILTER:
	case RTM_DELTFILTER:
		if (filter_concerns(skb))
			shunt_move_epoch();
		break;
	case RTM_DELLINK:
	case RTM_DELADDR:
	case RTM_NEWRULE:
	case RTM_DELRULE:
	case RTM_NEWNETCONF:
	case RTM_NEWVLAN:
	case RTM_DELVLAN:
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		shunt_move_epoch();
		break;
	}
	return SHUNT_WHOLE;
}

SEC("socket")
int shunt_ipsec_changes(struct __sk_buff *skb)
{
	switch (message_type(skb)) {
	case XFRM_MSG_NEWPOLICY:
	case XFRM_MSG_UPDPOLICY:
	case XFRM_MSG_DELPOLICY:
	case XFRM_MSG_FLUSHPOLICY:
	case XFRM_MSG_POLEXPIRE:
		shunt_move_epoch();
	}
	return SHUNT_WHOLE;
}

/*
 * A new generation ends a commit; all of it is in force. The daemon hears of changed rules that no forwarded packet
 * meets, since it reads these, too, but neither of elements nor of generations that concern no flow.
 */
SEC("socket")
int shunt_ruleset_changes(struct __sk_buff *skb)
{
	if (message_type(skb) != (SHUNT_NFT | NFT_MSG_NEWGEN)) {
		shunt_judge_messages(skb);
		return shunt_commit.concerns || shunt_commit.aside ? SHUNT_WHOLE : SHUNT_NONE;
	}
	if (!shunt_commit_concerns())
		return SHUNT_NONE;
	shunt_move_epoch();
	return SHUNT_WHOLE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
