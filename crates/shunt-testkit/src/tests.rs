//! What shunt-lab sets up, tried with traffic.

mod netns;
mod topology;
