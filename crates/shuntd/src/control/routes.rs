//! The paths of the control socket.

use super::{
    Call, LISTS_MAX, WATCHERS_MAX,
    guests::Who,
    list::{list, whole},
    metrics::{METRICS_TYPE, page},
    watch,
};
use axum::{
    Extension, Json, Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, de::DeserializeOwned};
use shunt_api::{
    Connection, Count, ErrorBody, Explanation, Failure, FailureCode, Selection, StaticRemoval, StaticTable,
    Status, TrackedTable, WatchEvent,
};
use shunt_http::{Refusal, Watched, bad, internal, unknown_method, unknown_path};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use utoipa::{IntoParams, IntoResponses, OpenApi};
use utoipa_axum::{router::OpenApiRouter, routes};

type Calls = State<Desk>;
type Answer<T> = Result<Json<T>, Refusal>;

/// What the handlers share.
#[derive(Debug, Clone)]
struct Desk {
    calls: mpsc::Sender<Call>,
    lists: Arc<Semaphore>,
    readers_lists: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
}

const BODY_BYTES: usize = 4 << 20;
/// Bodies that are read at a time, so that they do not fill the memory.
const BODIES_MAX: usize = 4;
const BODY_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Undoing everything may take long: it waits for the kernel to let go of every attachment.
const STOP_TIME: Duration = Duration::from_secs(20);
/// A few tens of microseconds each.
const EXPLAINED_AT_ONCE: usize = 16;
const RATE_OVER_MAX_MS: u64 = 10_000;

/// The paths with their descriptions. A new one is a handler with its `utoipa::path`, and a line here.
fn paths() -> OpenApiRouter<Desk> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status))
        .routes(routes!(flows))
        .routes(routes!(why))
        .routes(routes!(conntrack))
        .routes(routes!(watch))
        .routes(routes!(flush))
        .routes(routes!(stop))
        .routes(routes!(list_static, add_static, del_static))
        .routes(routes!(openapi))
        .routes(routes!(metrics))
}

#[derive(OpenApi)]
#[openapi(
    components(schemas(ErrorBody)),
    info(
        title = "shuntd",
        description = "The control socket of the Shunt daemon: HTTP/1.1 over a Unix socket.\n\n\
                   `curl --unix-socket /run/shunt/default.sock http://localhost/v1/status`",
        version = "1",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    )
)]
struct Description;

/// Whatever cannot be done.
#[derive(IntoResponses)]
#[response(status = "default", description = "What went wrong, and what to do about it")]
#[expect(dead_code, reason = "it stands for a schema")]
struct Refused(ErrorBody);

/// The description of the control socket, as OpenAPI.
pub fn document() -> utoipa::openapi::OpenApi {
    paths().into_openapi()
}

pub(super) fn router(calls: mpsc::Sender<Call>) -> Router {
    let (router, _) = paths().split_for_parts();
    finished(router, calls)
}

/// What is served to whoever reaches the address of the metrics.
pub(super) fn metrics_router(calls: mpsc::Sender<Call>) -> Router {
    finished(Router::new().route("/metrics", get(metrics)), calls)
}

fn finished(router: Router<Desk>, calls: mpsc::Sender<Call>) -> Router {
    let places = |count| Arc::new(Semaphore::new(count));
    let desk = Desk {
        calls,
        lists: places(LISTS_MAX),
        readers_lists: places(LISTS_MAX),
        bodies: places(BODIES_MAX),
        watchers: places(WATCHERS_MAX),
    };
    router.fallback(unknown_path).method_not_allowed_fallback(unknown_method).with_state(desk)
}

/// Ports, counts, flows by state, and what the kernel can do.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status), Refused))]
async fn status(State(desk): Calls) -> Answer<Status> {
    ask(&desk, ANSWER_TIME, Call::Status).await.map(Json)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FlowsQuery {
    /// Over how many milliseconds rates are taken, and the answer so waits; 0 means over the life of each flow.
    #[serde(default = "half_a_second")]
    #[param(required = false, maximum = 10_000)]
    rate_over_ms: u64,
}

fn half_a_second() -> u64 {
    500
}

/// Every connection with at least one flow in the table.
#[utoipa::path(get, path = "/v1/flows", params(FlowsQuery), responses((status = 200, body = [Connection]), Refused))]
async fn flows(
    State(desk): Calls,
    who: Option<Extension<Who>>,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(FlowsQuery { rate_over_ms }) = query.map_err(|why| bad(why.body_text()))?;
    if rate_over_ms > RATE_OVER_MAX_MS {
        return Err(bad(format!("rate_over_ms: {rate_over_ms} is not within 0 to {RATE_OVER_MAX_MS}")));
    }
    let mut place = desk.place_for_a_list(who).await?;
    let mut source = ask(&desk, ANSWER_TIME, Call::Flows).await?;
    if rate_over_ms > 0 {
        (place, source) = aside(place, move || {
            source.sample();
            source
        })
        .await?;
        sleep(Duration::from_millis(rate_over_ms)).await;
    }
    let (place, listing) = aside(place, move || source.list()).await?;
    Ok(list(listing, place))
}

impl Desk {
    /// Those who may only read have places of their own: they cannot take those of the owner.
    async fn place_for_a_list(&self, who: Option<Extension<Who>>) -> Result<OwnedSemaphorePermit, Refusal> {
        let owner = who.is_some_and(|Extension(who)| who == Who::Owner);
        let lists = if owner { &self.lists } else { &self.readers_lists };
        match timeout(ANSWER_TIME, Arc::clone(lists).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(internal(format!("{LISTS_MAX} other clients are reading lists; try again"))),
        }
    }
}

/// Has work done on another thread. It goes on when the client does not wait for it, and so it has the place with it.
async fn aside<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(OwnedSemaphorePermit, T), Refusal> {
    spawn_blocking(move || (place, work())).await.map_err(|why| internal(why.to_string()))
}

/// Why connections are fast or slow: the first hundred of those that were asked for.
#[utoipa::path(get, path = "/v1/why", params(Selection), responses((status = 200, body = Explanation), Refused))]
async fn why(
    State(desk): Calls,
    who: Option<Extension<Who>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Answer<Explanation> {
    let Query(wanted) = query.map_err(|why| bad(why.body_text()))?;
    let place = desk.place_for_a_list(who).await?;
    let job = ask(&desk, ANSWER_TIME, |reply| Call::Find(wanted, reply)).await?;
    let (_place, found) = aside(place, move || job.run()).await?;
    let (mut asked, more) = found?;
    let mut connections = Vec::new();
    while !asked.is_empty() {
        // The daemon has other things to do between them.
        let some = asked.drain(..asked.len().min(EXPLAINED_AT_ONCE)).collect();
        connections.extend(ask(&desk, ANSWER_TIME, |reply| Call::Explain(some, reply)).await??);
    }
    Ok(Json(Explanation { connections, more }))
}

/// Conntrack's table, with what the fast path has counted added in.
#[utoipa::path(get, path = "/v1/conntrack", responses((status = 200, body = TrackedTable), Refused))]
async fn conntrack(State(desk): Calls, who: Option<Extension<Who>>) -> Result<Response, Refusal> {
    let place = desk.place_for_a_list(who).await?;
    let job = ask(&desk, ANSWER_TIME, Call::Conntrack).await?;
    let (place, text) = aside(place, move || {
        let table = job.run()?;
        serde_json::to_vec(&table).map_err(|why| Failure::new(FailureCode::Internal, why.to_string()))
    })
    .await?;
    Ok(whole(text?, place))
}

/// What happens to flows, from now on: a line of JSON for each event.
#[utoipa::path(get, path = "/v1/watch", params(Selection), responses(
    (status = 200, body = WatchEvent, content_type = "application/x-ndjson"), Refused
))]
async fn watch(
    State(desk): Calls,
    Extension(watched): Extension<Watched>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(wanted) = query.map_err(|why| bad(why.body_text()))?;
    let place = Arc::clone(&desk.watchers)
        .try_acquire_owned()
        .map_err(|_| internal(format!("{WATCHERS_MAX} other clients are watching")))?;
    let events = ask(&desk, ANSWER_TIME, Call::Watch).await??;
    watched.begin();
    Ok(watch::lines(events, wanted, place))
}

/// Retires all learned flows. The answer is how many there were.
#[utoipa::path(post, path = "/v1/flush", responses((status = 200, body = Count), Refused))]
async fn flush(State(desk): Calls) -> Answer<Count> {
    counted(ask(&desk, ANSWER_TIME, Call::Flush).await)
}

/// Undoes everything and ends the daemon. The answer comes when all is undone.
#[utoipa::path(post, path = "/v1/stop", responses((status = 200, body = Count), Refused))]
async fn stop(State(desk): Calls) -> Answer<Count> {
    counted(ask(&desk, STOP_TIME, Call::Stop).await.map(|()| 0))
}

/// Flows and routes that were put in by hand.
#[utoipa::path(get, path = "/v1/static", responses((status = 200, body = StaticTable), Refused))]
async fn list_static(State(desk): Calls) -> Answer<StaticTable> {
    ask(&desk, ANSWER_TIME, Call::ListStatic).await.map(Json)
}

/// Adds or replaces flows and routes: all of them or none. The answer is how many.
#[utoipa::path(post, path = "/v1/static", request_body = StaticTable, responses((status = 200, body = Count), Refused))]
async fn add_static(State(desk): Calls, body: Body) -> Answer<Count> {
    let table: StaticTable = desk.read(body).await?;
    table.check()?;
    counted(ask(&desk, ANSWER_TIME, |reply| Call::AddStatic(table, reply)).await?.map_err(Refusal::from))
}

/// Removes flows and routes that were put in by hand. The answer is how many there were.
#[utoipa::path(delete, path = "/v1/static", request_body = StaticRemoval, responses((status = 200, body = Count), Refused))]
async fn del_static(State(desk): Calls, body: Body) -> Answer<Count> {
    let removal: StaticRemoval = desk.read(body).await?;
    counted(ask(&desk, ANSWER_TIME, |reply| Call::DelStatic(removal, reply)).await?.map_err(Refusal::from))
}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object), Refused))]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}

/// Counts in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), Refused
))]
async fn metrics(State(desk): Calls) -> Result<impl IntoResponse, Refusal> {
    let metered = ask(&desk, ANSWER_TIME, Call::Metrics).await?;
    let page = page(&metered).map_err(|why| internal(why.to_string()))?;
    Ok(([(CONTENT_TYPE, METRICS_TYPE)], page))
}

async fn ask<T>(
    desk: &Desk,
    within: Duration,
    call: impl FnOnce(oneshot::Sender<T>) -> Call,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let call = call(reply);
    let asked = async {
        desk.calls.send(call).await.ok()?;
        answer.await.ok()
    };
    match timeout(within, asked).await {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(internal("the daemon is about to end")),
        Err(_) => Err(internal(format!("the daemon did not answer within {} s", within.as_secs()))),
    }
}

impl Desk {
    // The content type is not looked at: `curl -d` says that everything is a form.
    async fn read<T: DeserializeOwned>(&self, body: Body) -> Result<T, Refusal> {
        if body.size_hint().lower() > BODY_BYTES as u64 {
            let why = format!("the body is longer than {BODY_BYTES} bytes");
            return Err(Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, ..bad(why) });
        }
        let place = self.bodies.acquire().await;
        let body = match timeout(BODY_TIME, to_bytes(body, BODY_BYTES)).await {
            Ok(body) => body.map_err(|why| bad(why.to_string()))?,
            Err(_) => {
                let why = "the body did not come to its end in time";
                return Err(Refusal { status: StatusCode::REQUEST_TIMEOUT, ..bad(why) });
            }
        };
        let value = serde_json::from_slice(&body).map_err(|why| bad(why.to_string()));
        drop(place);
        value
    }
}

fn counted(answer: Result<u64, Refusal>) -> Answer<Count> {
    answer.map(|count| Json(Count { count }))
}
