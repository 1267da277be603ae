//! One module for each command of `shunt`: its arguments, how they are resolved against the machine, and what it does.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod conntrack;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod export;
pub(crate) mod flow;
pub(crate) mod flows;
pub(crate) mod flush;
pub(crate) mod generate;
pub(crate) mod lab;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod next;
pub(crate) mod probe;
pub(crate) mod qos;
pub(crate) mod reg;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod watch;
pub(crate) mod why;

mod arguments;
mod hosts;
pub(crate) mod measure;
pub(crate) mod model;
mod result_files;
