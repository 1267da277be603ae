//! The paths of the control socket.

use super::{
    Call, LISTS_MAX, WATCHERS_MAX,
    admission::Client,
    event_stream,
    json_list::{complete_answer, streamed_list},
    metrics::{self, METRICS_TYPE},
    page, stored_reports,
};
use axum::{
    Extension, Json, Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, de::DeserializeOwned};
use shunt_api::{
    Connection, Count, ErrorBody, Explanation, Failure, FailureCode, PortQos, QosRemoval, QosStatus,
    Selection, StaticRemoval, StaticTable, Status, StoredReport, TrackedTable, WatchEvent, check_qos,
};
use shunt_http::{Refusal, Watched, bad, internal, unknown_method, unknown_path};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use utoipa::{IntoParams, IntoResponses, OpenApi};
use utoipa_axum::{router::OpenApiRouter, routes};

type Shared = State<AppState>;
type Answer<T> = Result<Json<T>, Refusal>;

/// State that the handlers share: the channel to the event loop, and the permits that limit concurrent requests.
#[derive(Debug, Clone)]
struct AppState {
    calls: mpsc::Sender<Call>,
    owner_lists: Arc<Semaphore>,
    reader_lists: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    owner_watchers: Arc<Semaphore>,
    reader_watchers: Arc<Semaphore>,
    /// The directory of reports; empty for none.
    reports: Arc<PathBuf>,
}

/// The largest request body.
const BODY_BYTES: usize = 4 << 20;
/// Bodies that are read at a time, which limits the memory they take.
const BODIES_MAX: usize = 4;
/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(5);
/// How long the event loop may take to answer a call.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The same for a stop, which waits for the kernel to release every attachment.
const STOP_TIME: Duration = Duration::from_secs(20);
/// Connections that are explained in one call. Each takes a few tens of microseconds of the event loop.
const EXPLAINED_PER_CALL: usize = 16;
/// The largest `rate_over_ms`.
const RATE_OVER_MAX_MS: u64 = 10_000;

/// All paths with their descriptions. To add one, write a handler with `utoipa::path` and add a line here.
fn paths() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status))
        .routes(routes!(flows))
        .routes(routes!(why))
        .routes(routes!(conntrack))
        .routes(routes!(watch))
        .routes(routes!(flush))
        .routes(routes!(stop))
        .routes(routes!(list_static, add_static, del_static))
        .routes(routes!(list_qos, set_qos, del_qos))
        .routes(routes!(list_reports))
        .routes(routes!(read_report))
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

/// Any error.
#[derive(IntoResponses)]
#[response(status = "default", description = "What went wrong, and what to do about it")]
#[expect(dead_code, reason = "names the schema of all errors")]
struct Refused(ErrorBody);

/// The description of the control socket, as OpenAPI.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    paths().into_openapi()
}

/// The paths of the control socket; `reports` is the directory of reports.
pub(super) fn router(calls: mpsc::Sender<Call>, reports: PathBuf) -> Router {
    let (router, _) = paths().split_for_parts();
    with_fallbacks(router.route("/", get(page::page)), calls, reports)
}

/// The paths that are served at the page's address: the page, and what it reads.
pub(super) fn page_router(calls: mpsc::Sender<Call>, reports: PathBuf) -> Router {
    let (router, _) = OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(flows))
        .routes(routes!(why))
        .routes(routes!(list_reports))
        .routes(routes!(read_report))
        .split_for_parts();
    with_fallbacks(router.route("/", get(page::page)), calls, reports)
}

/// The paths that are served at the metrics address.
pub(super) fn metrics_router(calls: mpsc::Sender<Call>) -> Router {
    with_fallbacks(Router::new().route("/metrics", get(metrics)), calls, PathBuf::new())
}

fn with_fallbacks(router: Router<AppState>, calls: mpsc::Sender<Call>, reports: PathBuf) -> Router {
    let permits = |count| Arc::new(Semaphore::new(count));
    let state = AppState {
        calls,
        owner_lists: permits(LISTS_MAX),
        reader_lists: permits(LISTS_MAX),
        bodies: permits(BODIES_MAX),
        owner_watchers: permits(WATCHERS_MAX),
        reader_watchers: permits(WATCHERS_MAX),
        reports: Arc::new(reports),
    };
    router.fallback(unknown_path).method_not_allowed_fallback(unknown_method).with_state(state)
}

/// Ports, counts, flows by state, and what the kernel can do.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status), Refused))]
async fn status(State(state): Shared) -> Answer<Status> {
    call(&state, ANSWER_TIME, Call::Status).await.map(Json)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FlowsQuery {
    /// The time over which rates are measured, in milliseconds: the answer takes that long. 0 means over the life of
    /// each flow.
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
    State(state): Shared,
    client: Option<Extension<Client>>,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(FlowsQuery { rate_over_ms }) = query.map_err(|why| bad(why.body_text()))?;
    if rate_over_ms > RATE_OVER_MAX_MS {
        return Err(bad(format!("rate_over_ms: {rate_over_ms} is not within 0 to {RATE_OVER_MAX_MS}")));
    }
    let mut permit = state.list_permit(client).await?;
    let mut source = call(&state, ANSWER_TIME, Call::Flows).await?;
    if rate_over_ms > 0 {
        (permit, source) = on_other_thread(permit, move || {
            source.sample();
            source
        })
        .await?;
        sleep(Duration::from_millis(rate_over_ms)).await;
    }
    let (permit, listing) = on_other_thread(permit, move || source.list()).await?;
    Ok(streamed_list(listing, permit))
}

fn is_owner(client: Option<Extension<Client>>) -> bool {
    client.is_some_and(|Extension(client)| client == Client::Owner)
}

impl AppState {
    /// Waits for a permit to make a long answer. Read-only clients have permits of their own and cannot take the owner's.
    async fn list_permit(&self, client: Option<Extension<Client>>) -> Result<OwnedSemaphorePermit, Refusal> {
        let lists = if is_owner(client) { &self.owner_lists } else { &self.reader_lists };
        match timeout(ANSWER_TIME, Arc::clone(lists).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(internal(format!("{LISTS_MAX} other clients are reading long answers; try again"))),
        }
    }
}

/// Does work on another thread. The work goes on if the client disconnects, so the permit goes along with it.
async fn on_other_thread<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(OwnedSemaphorePermit, T), Refusal> {
    spawn_blocking(move || (permit, work())).await.map_err(|why| internal(why.to_string()))
}

/// Explains why connections are fast or slow: the first hundred that match the selection.
#[utoipa::path(get, path = "/v1/why", params(Selection), responses((status = 200, body = Explanation), Refused))]
async fn why(
    State(state): Shared,
    client: Option<Extension<Client>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Answer<Explanation> {
    let Query(selection) = query.map_err(|why| bad(why.body_text()))?;
    let permit = state.list_permit(client).await?;
    let job = call(&state, ANSWER_TIME, |reply| Call::Find(selection, reply)).await?;
    let (_permit, found) = on_other_thread(permit, move || job.run()).await?;
    let (mut candidates, more) = found?;
    let mut connections = Vec::new();
    while !candidates.is_empty() {
        // Between two calls the event loop does other work.
        let some = candidates.drain(..candidates.len().min(EXPLAINED_PER_CALL)).collect();
        connections.extend(call(&state, ANSWER_TIME, |reply| Call::Explain(some, reply)).await??);
    }
    Ok(Json(Explanation { connections, more }))
}

/// Conntrack's table, with the packets that the fast path has forwarded added to its counts.
#[utoipa::path(get, path = "/v1/conntrack", responses((status = 200, body = TrackedTable), Refused))]
async fn conntrack(State(state): Shared, client: Option<Extension<Client>>) -> Result<Response, Refusal> {
    let permit = state.list_permit(client).await?;
    let job = call(&state, ANSWER_TIME, Call::Conntrack).await?;
    let (permit, text) = on_other_thread(permit, move || {
        let table = job.run()?;
        serde_json::to_vec(&table).map_err(|why| Failure::new(FailureCode::Internal, why.to_string()))
    })
    .await?;
    Ok(complete_answer(text?, permit))
}

/// Streams what happens to flows from now on, a line of JSON for each event.
#[utoipa::path(get, path = "/v1/watch", params(Selection), responses(
    (status = 200, body = WatchEvent, content_type = "application/x-ndjson"), Refused
))]
async fn watch(
    State(state): Shared,
    Extension(watched): Extension<Watched>,
    client: Option<Extension<Client>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(selection) = query.map_err(|why| bad(why.body_text()))?;
    let watchers = if is_owner(client) { &state.owner_watchers } else { &state.reader_watchers };
    let permit = Arc::clone(watchers).try_acquire_owned().map_err(|_| {
        internal(format!("{WATCHERS_MAX} other clients are watching; try again when one has ended"))
    })?;
    let events = call(&state, ANSWER_TIME, Call::Watch).await??;
    watched.begin();
    Ok(event_stream::lines(events, selection, permit))
}

/// Retires all learned flows. The answer is their number.
#[utoipa::path(post, path = "/v1/flush", responses((status = 200, body = Count), Refused))]
async fn flush(State(state): Shared) -> Answer<Count> {
    count_answer(call(&state, ANSWER_TIME, Call::Flush).await)
}

/// Detaches from all ports and ends the daemon. The answer comes when everything is undone.
#[utoipa::path(post, path = "/v1/stop", responses((status = 200, body = Count), Refused))]
async fn stop(State(state): Shared) -> Answer<Count> {
    count_answer(call(&state, STOP_TIME, Call::Stop).await.map(|()| 0))
}

/// All static flows and routes.
#[utoipa::path(get, path = "/v1/static", responses((status = 200, body = StaticTable), Refused))]
async fn list_static(State(state): Shared) -> Answer<StaticTable> {
    call(&state, ANSWER_TIME, Call::ListStatic).await.map(Json)
}

/// Adds or replaces static flows and routes: all of them or, after an error, none. The answer is their number.
#[utoipa::path(post, path = "/v1/static", request_body = StaticTable, responses((status = 200, body = Count), Refused))]
async fn add_static(State(state): Shared, body: Body) -> Answer<Count> {
    let table: StaticTable = state.read_json(body).await?;
    table.check()?;
    count_answer(
        call(&state, ANSWER_TIME, |reply| Call::AddStatic(table, reply)).await?.map_err(Refusal::from),
    )
}

/// Removes static flows and routes. The answer is how many were removed.
#[utoipa::path(delete, path = "/v1/static", request_body = StaticRemoval, responses((status = 200, body = Count), Refused))]
async fn del_static(State(state): Shared, body: Body) -> Answer<Count> {
    let removal: StaticRemoval = state.read_json(body).await?;
    count_answer(
        call(&state, ANSWER_TIME, |reply| Call::DelStatic(removal, reply)).await?.map_err(Refusal::from),
    )
}

/// The queues of the ports that have some, with their counters, which are up to 0.2 s old.
#[utoipa::path(get, path = "/v1/qos", responses((status = 200, body = [QosStatus]), Refused))]
async fn list_qos(State(state): Shared) -> Answer<Vec<QosStatus>> {
    call(&state, ANSWER_TIME, Call::Qos).await.map(Json)
}

/// Sets the queues of ports, by their names: those of all named ports or, after an error, none. What is queued stays queued. The answer is
/// the number of ports.
#[utoipa::path(post, path = "/v1/qos", request_body = BTreeMap<String, PortQos>, responses((status = 200, body = Count), Refused))]
async fn set_qos(State(state): Shared, body: Body) -> Answer<Count> {
    let table: BTreeMap<String, PortQos> = state.read_json(body).await?;
    check_qos(&table).map_err(bad)?;
    count_answer(call(&state, ANSWER_TIME, |reply| Call::SetQos(table, reply)).await?.map_err(Refusal::from))
}

/// Removes the queues of ports. What is queued leaves first. The answer is the number of ports.
#[utoipa::path(delete, path = "/v1/qos", request_body = QosRemoval, responses((status = 200, body = Count), Refused))]
async fn del_qos(State(state): Shared, body: Body) -> Answer<Count> {
    let removal: QosRemoval = state.read_json(body).await?;
    count_answer(
        call(&state, ANSWER_TIME, |reply| Call::DelQos(removal, reply)).await?.map_err(Refusal::from),
    )
}

/// The newest 200 reports of the lab in the directory `page_reports`.
#[utoipa::path(get, path = "/v1/reports", responses((status = 200, body = [StoredReport]), Refused))]
async fn list_reports(State(state): Shared, client: Option<Extension<Client>>) -> Answer<Vec<StoredReport>> {
    let permit = state.list_permit(client).await?;
    let (_permit, reports) = on_other_thread(permit, move || stored_reports::list(&state.reports)).await?;
    Ok(Json(reports?))
}

/// A report of the lab: a page that `shunt report` wrote.
#[utoipa::path(get, path = "/v1/reports/{name}", params(("name" = String, Path, description = "The name in the list")), responses(
    (status = 200, body = String, content_type = "text/html"), Refused
))]
async fn read_report(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let permit = state.list_permit(client).await?;
    let (permit, (name, page)) = on_other_thread(permit, move || {
        let page = stored_reports::read(&state.reports, &name);
        (name, page)
    })
    .await?;
    match page? {
        Some(page) => Ok(page::report(page, permit)),
        None => Err(Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("no report `{name}`")) }),
    }
}

/// This description, as OpenAPI.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object), Refused))]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi_document())
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), Refused
))]
async fn metrics(State(state): Shared) -> Result<impl IntoResponse, Refusal> {
    let source = call(&state, ANSWER_TIME, Call::Metrics).await?;
    let page = metrics::page(&source).map_err(|why| internal(why.to_string()))?;
    Ok(([(CONTENT_TYPE, METRICS_TYPE)], page))
}

/// Sends a call to the event loop and waits for its answer.
async fn call<T>(
    state: &AppState,
    within: Duration,
    make_call: impl FnOnce(oneshot::Sender<T>) -> Call,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let call = make_call(reply);
    let answered = async {
        state.calls.send(call).await.ok()?;
        answer.await.ok()
    };
    match timeout(within, answered).await {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(internal("the daemon is shutting down")),
        Err(_) => Err(internal(format!("the daemon did not answer within {} s", within.as_secs()))),
    }
}

impl AppState {
    // Ignores the content type: `curl -d` labels every body a form.
    async fn read_json<T: DeserializeOwned>(&self, body: Body) -> Result<T, Refusal> {
        if body.size_hint().lower() > BODY_BYTES as u64 {
            let why = format!("the body is longer than {BODY_BYTES} bytes");
            return Err(Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, ..bad(why) });
        }
        let permit = self.bodies.acquire().await;
        let body = match timeout(BODY_TIME, to_bytes(body, BODY_BYTES)).await {
            Ok(body) => body.map_err(|why| bad(why.to_string()))?,
            Err(_) => {
                let why = format!("the body did not arrive completely within {} s", BODY_TIME.as_secs());
                return Err(Refusal { status: StatusCode::REQUEST_TIMEOUT, ..bad(why) });
            }
        };
        let value = serde_json::from_slice(&body).map_err(|why| bad(why.to_string()));
        drop(permit);
        value
    }
}

fn count_answer(answer: Result<u64, Refusal>) -> Answer<Count> {
    answer.map(|count| Json(Count { count }))
}
