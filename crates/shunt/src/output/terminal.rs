//! A terminal in raw mode that shows a screen of its own, and shows the former one again at the end.

use nix::sys::signal::{SigSet, Signal};
use ratatui_core::terminal::{Frame, Terminal as Drawn};
use ratatui_crossterm::{
    CrosstermBackend,
    crossterm::{
        cursor, execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use std::{
    io::{self, Stdout, stdout},
    panic::{set_hook, take_hook},
};

/// The screen. Dropping it restores the terminal; so does a panic, also where a panic aborts.
pub(crate) struct Terminal {
    screen: Drawn<CrosstermBackend<Stdout>>,
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            let _ = restore();
            let _ = execute!(stdout(), cursor::Show);
            hook(panic);
        }));
        let open = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen)?;
            Drawn::new(CrosstermBackend::new(stdout()))
        };
        open().map(|screen| Self { screen }).inspect_err(|_| drop(restore()))
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(drop)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // In the background, SIGTTOU would stop the process instead.
        let _ = SigSet::from_iter([Signal::SIGTTOU]).thread_block();
        // If the terminal is gone, there is nothing to restore.
        let _ = self.screen.show_cursor();
        let _ = restore();
    }
}

/// Leaves raw mode first, since it does more harm than the other screen.
fn restore() -> io::Result<()> {
    disable_raw_mode()?;
    execute!(stdout(), LeaveAlternateScreen)
}
