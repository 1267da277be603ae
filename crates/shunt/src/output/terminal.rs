//! A terminal in raw mode that shows a screen of its own, and shows the former one again at the end.

use nix::sys::signal::{SigSet, Signal};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::{cursor, execute},
};
use std::{
    io::{self, stdout},
    panic::{set_hook, take_hook},
};

/// The screen. Dropping it restores the terminal; so does a panic, also where a panic aborts.
pub(crate) struct Terminal {
    screen: DefaultTerminal,
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            let _ = execute!(stdout(), cursor::Show);
            hook(panic);
        }));
        // ratatui adds a hook that leaves the screen and raw mode, and then calls the one above.
        match ratatui::try_init() {
            Ok(screen) => Ok(Self { screen }),
            Err(error) => {
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
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
        let _ = ratatui::try_restore();
    }
}
