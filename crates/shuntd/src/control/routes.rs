//! The paths of the control socket.

use super::Call;
use axum::{
    Json, Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Query, State, rejection::QueryRejection},
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, de::DeserializeOwned};
use shunt_api::{Connection, Count, ErrorBody, Failure, FailureCode, StaticTable, Status};
use std::time::Duration;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

type Calls = State<mpsc::Sender<Call>>;
type Answer<T> = Result<Json<T>, Refusal>;

const BODY_BYTES: usize = 4 << 20;
const BODY_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Undoing everything may take long: it waits for the kernel to let go of every attachment.
const STOP_TIME: Duration = Duration::from_secs(20);
const RATE_OVER_MAX_MS: u64 = 10_000;

pub(super) fn router(calls: mpsc::Sender<Call>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/flows", get(flows))
        .route("/v1/flush", post(flush))
        .route("/v1/stop", post(stop))
        .route("/v1/static", get(list_static).post(add_static).delete(del_static))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(calls)
}

async fn status(State(calls): Calls) -> Answer<Status> {
    ask(&calls, ANSWER_TIME, Call::Status).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowsQuery {
    #[serde(default = "half_a_second")]
    rate_over_ms: u64,
}

fn half_a_second() -> u64 {
    500
}

async fn flows(
    State(calls): Calls,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Answer<Vec<Connection>> {
    let Query(FlowsQuery { rate_over_ms }) = query.map_err(|why| bad(why.body_text()))?;
    if rate_over_ms > RATE_OVER_MAX_MS {
        return Err(bad(format!("rate_over_ms: {rate_over_ms} is not within 0 to {RATE_OVER_MAX_MS}")));
    }
    let rate_over = Duration::from_millis(rate_over_ms);
    ask(&calls, rate_over + ANSWER_TIME, |reply| Call::Flows { rate_over, reply }).await.map(Json)
}

async fn flush(State(calls): Calls) -> Answer<Count> {
    counted(ask(&calls, ANSWER_TIME, Call::Flush).await)
}

async fn stop(State(calls): Calls) -> Answer<Count> {
    counted(ask(&calls, STOP_TIME, Call::Stop).await.map(|()| 0))
}

async fn list_static(State(calls): Calls) -> Answer<StaticTable> {
    ask(&calls, ANSWER_TIME, Call::ListStatic).await.map(Json)
}

async fn add_static(State(calls): Calls, body: Body) -> Answer<Count> {
    let table: StaticTable = read(body).await?;
    table.check()?;
    counted(ask(&calls, ANSWER_TIME, |reply| Call::AddStatic(table, reply)).await?.map_err(Refusal::from))
}

async fn del_static(State(calls): Calls, body: Body) -> Answer<Count> {
    let removal = read(body).await?;
    counted(ask(&calls, ANSWER_TIME, |reply| Call::DelStatic(removal, reply)).await?.map_err(Refusal::from))
}

async fn unknown_path(uri: Uri) -> Refusal {
    Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("there is no {}", uri.path())) }
}

async fn unknown_method(method: Method, uri: Uri) -> Refusal {
    Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        ..bad(format!("{} does not take {method}", uri.path()))
    }
}

async fn ask<T>(
    calls: &mpsc::Sender<Call>,
    within: Duration,
    call: impl FnOnce(oneshot::Sender<T>) -> Call,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let call = call(reply);
    let asked = async {
        calls.send(call).await.ok()?;
        answer.await.ok()
    };
    match timeout(within, asked).await {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(Failure::new(FailureCode::Internal, "the daemon is about to end").into()),
        Err(_) => {
            let why = format!("the daemon did not answer within {} s", within.as_secs());
            Err(Failure::new(FailureCode::Internal, why).into())
        }
    }
}

// The content type is not looked at: `curl -d` says that everything is a form.
async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    if body.size_hint().lower() > BODY_BYTES as u64 {
        let why = format!("the body is longer than {BODY_BYTES} bytes");
        return Err(Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, ..bad(why) });
    }
    let body = match timeout(BODY_TIME, to_bytes(body, BODY_BYTES)).await {
        Ok(body) => body.map_err(|why| bad(why.to_string()))?,
        Err(_) => {
            let why = "the body did not come to its end in time";
            return Err(Refusal { status: StatusCode::REQUEST_TIMEOUT, ..bad(why) });
        }
    };
    serde_json::from_slice(&body).map_err(|why| bad(why.to_string()))
}

fn counted(answer: Result<u64, Refusal>) -> Answer<Count> {
    answer.map(|count| Json(Count { count }))
}

fn bad(why: impl Into<String>) -> Refusal {
    Failure::new(FailureCode::BadRequest, why).into()
}

struct Refusal {
    status: StatusCode,
    failure: Failure,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            FailureCode::BadRequest | FailureCode::Usage => StatusCode::BAD_REQUEST,
            FailureCode::PortMissing => StatusCode::NOT_FOUND,
            FailureCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::CONFLICT,
        };
        Self { status, failure }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.failure })).into_response()
    }
}
