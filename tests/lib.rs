//! Tests that need root: program tables (`prog`), network namespaces (`netns`), and scripts for other kernels (`vm`).
