//! Namespaces, topologies, traffic and packets for tests, demo and bench.
