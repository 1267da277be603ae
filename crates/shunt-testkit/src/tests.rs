//! Tests of the namespaces and topologies of shunt-lab with real traffic.

mod netns;
mod topology;
