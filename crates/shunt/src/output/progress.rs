//! The progress of a long measurement, on standard error. Standard output has results only.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use shunt_lab::Progress;

/// A progress bar. It is drawn only if standard error is a terminal, and it is cleared at the end.
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

    pub(crate) fn show(&self, progress: &Progress) {
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
        self.0.set_message(progress.now.clone());
    }

    /// Hides the bar while `print` writes to the terminal.
    pub(crate) fn hidden_while<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}
