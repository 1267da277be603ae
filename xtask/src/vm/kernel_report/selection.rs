//! Which tests run on which kernel.

/// The tests to run, by test program: title of the row in docs/kernels.md, and name of the test.
pub(super) const TESTS: [(&str, &[(&str, &str)]); 4] = [
    (
        "forwarding",
        &[
            ("UDP over IPv4", "nat::plain_udp_is_the_same"),
            ("TCP over IPv6", "nat::plain_tcp_over_ipv6_is_the_same"),
            ("masquerading, TCP", "nat::masqueraded_tcp_is_the_same"),
            ("LAN on a VLAN device", "vlans::a_tagged_lan_and_an_untagged_wan"),
            ("WAN on a VLAN device", "vlans::an_untagged_lan_and_a_tagged_wan"),
            ("one VLAN to another", "vlans::a_tag_for_another"),
            ("QinQ to one tag", "vlans::two_tags_for_one"),
            ("QinQ to none", "vlans::two_tags_and_none"),
            ("none to QinQ", "vlans::none_and_two_tags"),
            ("tags beside the frame and in it", "vlans::tags_beside_the_frame_and_in_it"),
            ("priority tags", "vlans::priority_tags"),
            ("a VLAN device is added below XDP", "vlans::xdp_goes_on_when_a_vlan_device_is_added"),
            ("a bridge that knows VLANs, trunk port", "vlans::a_trunk_port_of_a_bridge_that_knows_vlans"),
            ("a bridge that knows VLANs, access port", "vlans::an_access_port_of_a_bridge_that_knows_vlans"),
            ("a bridge on top of a VLAN device", "vlans::a_bridge_on_top_of_a_vlan_device"),
            ("a qdisc of a VLAN device is not bypassed", "vlans::a_qdisc_of_a_vlan_device_is_not_bypassed"),
            (
                "`auto` takes tc for fq_codel, cake, prio, htb, fq",
                "qdisc_kinds::auto_takes_tc_for_each_qdisc_that_was_added",
            ),
            (
                "`auto` takes tc for a qdisc on a queue of mq",
                "qdisc_kinds::a_queue_of_mq_with_a_qdisc_of_its_own_is_not_bypassed",
            ),
            ("cake on an ifb, for what comes in", "qdisc_kinds::ingress_traffic_shaped_by_an_ifb_stays_slow"),
            (
                "GRE, IPIP, VXLAN and WireGuard that end on the router",
                "tunnels::packets_of_a_tunnel_that_ends_on_the_router_are_not_learned",
            ),
            (
                "VXLAN, Geneve and GRE with Ethernet inside as ports",
                "ethernet_tunnels::packets_between_ethernet_and_a_tunnel",
            ),
            (
                "VXLAN that passes the router, aggregated",
                "tunnels::aggregates_of_a_tunnel_that_passes_the_router_are_not_sent_longer_than_the_mtu",
            ),
            (
                "a container between macvlans",
                "tunnels::packets_that_a_container_routes_between_macvlans_are_not_learned",
            ),
            (
                "a container between bridges",
                "re_entry::packets_that_passed_another_namespace_are_not_learned",
            ),
            (
                "packets that IPsec demands encrypted",
                "re_entry::packets_that_ipsec_requires_encrypted_are_not_forwarded_in_clear_text",
            ),
            ("a VRF", "vrfs::flows_between_ports_of_a_vrf_are_fast"),
            ("IPVS", "balanced::a_connection_that_ipvs_balances_stays_slow"),
            ("failover of a bond", "bonds::a_failover_of_a_bond_takes_effect_at_once"),
            ("static flows without BTF", "statics::flows_are_forwarded_without_btf"),
            ("nothing left behind", "a_daemon_that_ends_leaves_nothing_behind"),
        ],
    ),
    (
        "reaction",
        &[
            ("rates: htb with fq_codel", "rates_by_qdisc::classes_of_htb_with_fq_codel_get_their_rates"),
            ("rates: cake", "rates_by_qdisc::flows_get_their_share_of_cake"),
            ("rates: prio", "rates_by_qdisc::bands_of_prio_go_before_one_another"),
            ("delay behind fq_codel", "rates_by_qdisc::a_sparse_flow_waits_no_longer_behind_fq_codel"),
            (
                "routed over a bridge, a station roams",
                "routed_bridge::flows_follow_a_station_that_roams_at_once",
            ),
            (
                "routed over a bridge, states of its ports",
                "routed_bridge::the_state_of_a_bridge_port_takes_effect_at_once_on_routed_flows",
            ),
            (
                "bridged, UDP and TCP of both families",
                "bridged::bytes::bridged_packets_are_fast_and_the_same_to_the_last_byte",
            ),
            (
                "bridged, with br_netfilter",
                "bridged::bytes::bridged_packets_that_conntrack_sees_are_fast_like_routed_ones",
            ),
            ("rules that no packet meets", "rules_aside::rules_aside_leave_flows_fast"),
            (
                "rules to which another change leads",
                "rules_aside::rules_to_which_another_change_leads_end_flows",
            ),
            ("bridged, a station roams", "bridged::changes::flows_follow_a_station_that_roams_at_once"),
            ("bridged, states of ports", "bridged::changes::the_state_of_a_port_takes_effect_at_once"),
        ],
    ),
    (
        "twin",
        &[
            ("twins, VLANs and IPsec, Linux alone", "linux_does_the_same_twice"),
            ("twins, VLANs and IPsec, engine tc", "tc_cannot_be_told_from_linux"),
            ("twins, VLANs and IPsec, engine xdp", "xdp_cannot_be_told_from_linux"),
            ("twins, VLANs and IPsec, engine auto", "auto_cannot_be_told_from_linux"),
        ],
    ),
    (
        "lab",
        &[
            (
                "trace: slow path",
                "trace::every_forwarded_packet_is_followed_and_takes_no_longer_than_its_latency",
            ),
            ("trace: engine tc", "trace::packets_of_the_tc_engine_are_fast_beside_slow_ones"),
            (
                "trace: engine xdp",
                "trace::frames_of_the_xdp_engine_are_followed_where_the_kernel_shows_their_entry",
            ),
            ("trace: local TCP", "trace::local_tcp_is_followed_from_the_send_call_to_the_wire_and_back"),
            (
                "trace: the function that takes the time",
                "trace::bisecting_names_the_function_or_says_what_the_kernel_lacks",
            ),
            ("culprit: netem, delay", "culprits::a_qdisc_that_delays_is_named"),
            ("culprit: netem, loss", "culprits::a_qdisc_that_loses_is_named"),
            ("culprit: tbf, full", "culprits::a_qdisc_that_is_full_is_named"),
            ("culprit: tbf and htb, delay", "culprits::qdiscs_that_shape_are_named"),
            ("culprit: another thread", "culprits::a_thread_that_has_the_cpu_is_named"),
            ("culprit: a server that sleeps", "culprits::a_server_that_sleeps_is_named"),
            ("culprit: a server that copies", "culprits::a_server_that_copies_is_named"),
            ("culprit: a lock", "culprits::a_thread_that_has_the_lock_is_named"),
            ("culprit: a cgroup's CPU limit", "culprits::cgroups::a_throttled_cgroup_is_named"),
            ("culprit: a rule", "culprits::a_chain_that_counts_connections_is_named"),
            (
                "culprit: a table of iptables",
                "culprits::a_table_of_iptables_is_named_where_the_kernel_shows_it",
            ),
            ("culprit: a small receive buffer", "culprits::a_small_receive_buffer_is_named"),
        ],
    ),
];
/// Tests that need XDP.
pub(super) const XDP_ONLY: [&str; 3] = [
    "qdisc_kinds::a_queue_of_mq_with_a_qdisc_of_its_own_is_not_bypassed",
    "xdp_cannot_be_told_from_linux",
    "trace::frames_of_the_xdp_engine_are_followed_where_the_kernel_shows_their_entry",
];
/// Tests that `make test` runs, by kernel and test program. The oldest has the strictest verifier. The newest has
/// netem, and shows the functions of netfilter, which the kernel of the machine may lack.
pub(super) const SHORT: [(&str, TestsOfPrograms); 2] = [
    (
        "6.1",
        &[
            ("forwarding", &["nat::masqueraded_tcp_is_the_same"]),
            ("reaction", &["rules_aside::rules_aside_leave_flows_fast"]),
        ],
    ),
    (
        "newest",
        &[
            (
                "forwarding",
                &[
                    "nat::masqueraded_tcp_is_the_same",
                    "vlans::two_tags_for_one",
                    "vlans::a_trunk_port_of_a_bridge_that_knows_vlans",
                ],
            ),
            ("lab", &CULPRITS),
        ],
    ),
];
/// Names of tests by test program.
pub(super) type TestsOfPrograms = &'static [(&'static str, &'static [&'static str])];
const CULPRITS: [&str; 3] = [
    "culprits::a_qdisc_that_delays_is_named",
    "culprits::a_qdisc_that_loses_is_named",
    "culprits::a_chain_that_counts_connections_is_named",
];
