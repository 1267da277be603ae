//! The screen of `shunt top`: waits for samples, keys and signals, and draws.

use super::{
    super::{history::read as read_history, hosts::KnownHosts, why},
    history::History,
    keys::{Next, press},
    sample::Sample,
};
use crate::{
    client::control::Client,
    commands::{
        top::view::{Look, Top, View, draw},
        why::view::explanation_text,
    },
    output::Terminal,
    signals::Signals,
};
use anyhow::Context;
use ratatui_crossterm::crossterm::event::{self, Event};
use shunt_api::{HostNames, Selection};
use std::{env, future::pending, io, pin::Pin, thread, time::Duration};
use tokio::{
    select,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep_until},
};

type Pending<'c, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + 'c>>;

/// How long a sample may take before the screen says so.
const LATE: Duration = Duration::from_secs(5);
/// Reasons are asked for so many slow connections, those with the highest rates. Enter explains any other.
const EXPLAINED: usize = 50;
/// Names are read again with each sample of this number: the daemon looks through its ledger for them.
const NAMES_EVERY: u64 = 30;

/// Shows the screen until a key or a signal ends it. The first sample must succeed; later ones may fail, and are tried
/// again.
pub(super) async fn run(client: &Client, interval: Duration) -> anyhow::Result<()> {
    let mut history = History::default();
    // An older daemon has no history.
    if let Ok(table) = read_history(client, History::chart_time(interval), None).await {
        history.begin_with(&table, interval);
    }
    let mut names = KnownHosts::read(client).await.names();
    let mut samples = 1;
    history.add(Sample::take(client, EXPLAINED).await?, &names);
    let look = look(|name| env::var(name).ok());
    // In the background, this stops the process until it is in the foreground. SIGTERM must end it even then, so the
    // handlers, which only report signals to the loop below, come later.
    let mut terminal = Terminal::open().context("cannot use the terminal")?;
    let mut signals = Signals::install()?;
    let mut keys = read_keys();
    let (mut view, mut top): (View, Option<Top>) = (View::default(), None);
    let mut due = Instant::now() + interval;
    let mut sampling = sample_at(client, due, false);
    let mut asking: Option<Pending<'_, String>> = None;
    let mut page = 0;
    loop {
        terminal.draw(|frame| page = draw(frame, top.as_ref(), &view, look))?;
        select! {
            _ = signals.next() => return Ok(()),
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) => match press(&mut view, top.as_ref(), page, key) {
                    Next::Draw => {}
                    Next::Quit => return Ok(()),
                    Next::Why(selection) => asking = Some(Box::pin(ask(client, selection))),
                },
                // The terminal has another size.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            (taken, sample) = &mut sampling => {
                // A large table takes long to read: leave the daemon at least three quarters of the time.
                due = Instant::now() + interval.max(taken * 3);
                samples += 1;
                sampling = sample_at(client, due, samples % NAMES_EVERY == 0);
                match sample {
                    _ if view.is_paused => {}
                    Ok((sample, read)) => {
                        names = read.unwrap_or(names);
                        view.failure = None;
                        top = history.add(sample, &names).or(top);
                    }
                    Err(error) => view.failure = Some(error.to_string()),
                }
            }
            () = sleep_until(due + LATE), if view.failure.is_none() => {
                view.failure = Some(format!("the daemon has been silent for {} s", LATE.as_secs()));
            }
            answer = wait_for(&mut asking) => {
                asking = None;
                // The user may have opened another text since.
                if let Some(detail) = view.detail.as_mut().filter(|detail| detail.is_awaited) {
                    detail.text = answer.unwrap_or_else(|error| error.to_string());
                    detail.is_awaited = false;
                }
            }
        }
    }
}

/// A sample, and the names of hosts if they were read, too.
type Read = (Sample, Option<HostNames>);
type Sampling<'c> = Pin<Box<dyn Future<Output = (Duration, anyhow::Result<Read>)> + 'c>>;

/// Takes a sample at this time, and measures how long that took.
fn sample_at(client: &Client, at: Instant, with_names: bool) -> Sampling<'_> {
    Box::pin(async move {
        sleep_until(at).await;
        let start = Instant::now();
        let sample = Sample::take(client, EXPLAINED).await;
        let names = if with_names { Some(KnownHosts::read(client).await.names()) } else { None };
        (start.elapsed(), sample.map(|sample| (sample, names)))
    })
}

async fn ask(client: &Client, selection: Selection) -> anyhow::Result<String> {
    why::explain(&selection, client).await.map(|explanation| explanation_text(&explanation))
}

/// Waits without an end if nothing was asked.
async fn wait_for<T>(asking: &mut Option<Pending<'_, T>>) -> anyhow::Result<T> {
    match asking {
        Some(answer) => answer.await,
        None => pending().await,
    }
}

/// The look that the environment asks for: character set from the locale, no colours if NO_COLOR is set
/// (<https://no-color.org>).
pub(super) fn look(variable: impl Fn(&str) -> Option<String>) -> Look {
    let value = |name| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    let unicode = locale.contains("utf-8") || locale.contains("utf8");
    Look { unicode, colour: value("NO_COLOR").is_none() }
}

/// Reads events of the terminal on a thread of its own, which the end of the process ends.
fn read_keys() -> UnboundedReceiver<io::Result<Event>> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
