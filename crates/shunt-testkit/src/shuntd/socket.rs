//! A minimal HTTP client for the control socket, independent of the code under test.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Longer than the daemon takes for its slowest answer.
const PATIENCE: Duration = Duration::from_secs(25);

/// Sends a request; returns the HTTP status and the body.
pub(super) fn request(path: &Path, method: &str, target: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    parse(&answer).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP response: {answer:?}"))
    })
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    if head.lines().any(|line| line == "transfer-encoding: chunked") {
        return Some((status, unchunked(body)?));
    }
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    (body.len() == length).then(|| (status, body.to_owned()))
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return (rest == "\r\n").then_some(text);
        }
        text.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}
