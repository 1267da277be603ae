//! Serves HTTP/1.1 on standard input and output, for the one client that started the agent by ssh.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread,
};

/// Serves until standard input ends: when the client or the ssh connection ends.
pub(super) async fn serve(router: Router) -> io::Result<()> {
    let (server, client) = UnixStream::pair()?;
    server.set_nonblocking(true)?;
    // Standard input may be a file or a pipe, which cannot be read asynchronously. Nothing waits for these threads when
    // a signal ends the agent.
    let (mut requests, mut answers) = (client.try_clone()?, client);
    thread::spawn(move || {
        let _ = forward(&mut io::stdin().lock(), &mut requests);
        let _ = requests.shutdown(Shutdown::Write);
    });
    thread::spawn(move || forward(&mut answers, &mut io::stdout().lock()));
    let stream = tokio::net::UnixStream::from_std(server)?;
    let served =
        http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
    served.map_err(io::Error::other)
}

/// Like [`io::copy`], but writes and flushes each part as soon as it was read.
fn forward(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = [0; 16384];
    loop {
        let length = from.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..length])?;
        to.flush()?;
    }
}
