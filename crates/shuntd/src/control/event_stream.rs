//! `GET /v1/watch`: an answer that ends only when the client or the daemon does.

use axum::{
    body::{Body, Bytes, HttpBody},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use hyper::body::Frame;
use shunt_api::{Selection, WatchEvent};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{
        OwnedSemaphorePermit,
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::timeout,
};

/// A client that reads nothing for this long is disconnected.
const READ_TIME: Duration = Duration::from_secs(30);

/// Streams the selected events, a line of JSON each, as fast as the client reads them. A client that is too slow loses
/// events, and is told how many. `permit` is held until the stream ends.
pub(super) fn lines(
    mut events: broadcast::Receiver<WatchEvent>,
    selection: Selection,
    permit: OwnedSemaphorePermit,
) -> Response {
    let (lines, body) = mpsc::channel(1);
    tokio::spawn(async move {
        let _permit = permit;
        loop {
            let event = tokio::select! {
                () = lines.closed() => return,
                event = events.recv() => match event {
                    Ok(event) => event,
                    Err(RecvError::Lagged(count)) => WatchEvent::Lost { count },
                    Err(RecvError::Closed) => return,
                },
            };
            let Some(line) = Some(event).filter(|event| event.is_selected(&selection)).and_then(json_line)
            else {
                continue;
            };
            if !matches!(timeout(READ_TIME, lines.send(line)).await, Ok(Ok(()))) {
                return;
            }
        }
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::new(Lines(body))).into_response()
}

fn json_line(event: WatchEvent) -> Option<Bytes> {
    let mut line = serde_json::to_vec(&event).ok()?;
    line.push(b'\n');
    Some(line.into())
}

struct Lines(mpsc::Receiver<Bytes>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use shunt_api::{FlowEvent, Proto, Tuple};
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    fn event(sport: u16) -> WatchEvent {
        let (src, dst) = (([192, 0, 2, 1], sport).into(), ([198, 51, 100, 1], 53).into());
        WatchEvent::Learn(FlowEvent {
            at_us: 1,
            proto: Proto::Udp,
            tuple: Tuple::new(src, dst),
            port: "eth0".to_owned(),
            vlans: Vec::new(),
            reason: None,
        })
    }

    async fn received(backlog: usize, events: &[WatchEvent], selection: Selection) -> Vec<WatchEvent> {
        let permits = Arc::new(Semaphore::new(1));
        let (sender, receiver) = broadcast::channel(backlog);
        for event in events {
            sender.send(event.clone()).unwrap();
        }
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        let answer = lines(receiver, selection, permit);
        drop(sender);
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let lines = body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        tokio::task::yield_now().await;
        assert_eq!(permits.available_permits(), 1, "the permit is released");
        events
    }

    #[tokio::test]
    async fn each_event_is_a_line_and_a_slow_client_is_told_how_many_it_lost() {
        let five: Vec<WatchEvent> = (1..=5).map(event).collect();
        assert_eq!(received(8, &five, Selection::default()).await, five);
        let late = received(2, &five, Selection::default()).await;
        assert_eq!(late, [WatchEvent::Lost { count: 3 }, event(4), event(5)]);
    }

    #[tokio::test]
    async fn a_client_receives_the_selected_flows_and_every_move_of_the_epoch() {
        let epoch = WatchEvent::Epoch { at_us: 1, epoch: 2, cause: "route".to_owned() };
        let events = [event(1), event(2), epoch.clone()];
        let by = |sport, dport| Selection { sport, dport, ..Selection::default() };
        assert_eq!(received(8, &events, by(Some(2), Some(53))).await, [event(2), epoch.clone()]);
        assert_eq!(received(8, &events, by(Some(53), Some(2))).await, [event(2), epoch.clone()]);
        assert_eq!(received(8, &events, by(Some(2), Some(2))).await, [epoch]);
    }
}
