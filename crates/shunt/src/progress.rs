//! How far a long measurement has come, for whoever watches the terminal. Standard output has only what was measured.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use shunt_lab::Progress;

/// A line on standard error, where that is a terminal; gone at the end.
#[derive(Clone)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::no_length().with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}, {eta} left: {msg}")
            .map(|s| s.progress_chars("=> "))
        {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(crate) fn show(&self, at: &Progress) {
        self.0.set_length(at.total);
        self.0.set_position(at.done);
        self.0.set_message(at.now.clone());
    }

    /// Lets something be printed above it.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}
