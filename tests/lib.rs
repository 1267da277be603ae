//! What needs root: program tables (`prog`) and namespaces (`netns`). The tests are in the folders of those names.
