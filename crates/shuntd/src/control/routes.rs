//! The paths of the control socket.

#[cfg(not(feature = "small"))]
mod described;
mod history;
mod off;
mod restart;
mod slow;
mod taps;
#[cfg(feature = "small")]
mod undescribed;
mod usage;

use super::{
    Call, Candidate, Found, Job, TrackedEntries,
    admission::Client,
    busiest::{MOST_MAX, busiest},
    event_stream,
    long_answer::{Items, Writer},
    metrics::{self, METRICS_TYPE},
    page,
    share::{Common, Share},
    stored_reports::{self, ReportsDirectory},
};
use axum::{
    Extension, Json, Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::get,
};
#[cfg(not(feature = "small"))]
pub use described::openapi_document;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shunt_api::{
    Connection, Count, ErrorBody, Explained, Explanation, Failure, FailureCode, PortQos, QosRemoval,
    QosStatus, Reload, ReloadRequest, Selection, StaticRemoval, StaticTable, Status, StoredReport, Tracked,
    TrackedTable, Tuple, WatchEvent, Why, check_qos,
};
use shunt_core::is_doubtful;
use shunt_http::{Refusal, Watched, bad, internal, unknown_method, unknown_path};
use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::spawn_blocking,
    time::{sleep, timeout},
};
#[cfg(feature = "small")]
use undescribed::{OpenApiRouter, routes};
use utoipa::{IntoParams, IntoResponses};
#[cfg(not(feature = "small"))]
use utoipa_axum::{router::OpenApiRouter, routes};

type Shared = State<AppState>;
type Answer<T> = Result<Json<T>, Refusal>;

/// State that the handlers share.
#[derive(Debug, Clone)]
struct AppState {
    owner: Arc<Share>,
    /// All other clients.
    readers: Arc<Share>,
    /// Permits for bodies of requests.
    bodies: Arc<Semaphore>,
    reports: ReportsDirectory,
}

/// The largest request body.
const BODY_BYTES: usize = 4 << 20;
/// Bodies that are read at a time, which limits the memory they take.
const BODIES_MAX: usize = 2;
/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(5);
/// How long the event loop may take to answer a call.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The same for a stop, which waits for the kernel to release every attachment.
const STOP_TIME: Duration = Duration::from_secs(20);
/// The same for a reload, which waits for ports.
const RELOAD_TIME: Duration = Duration::from_secs(20);
/// Connections that are explained in one call. Each takes a few tens of microseconds of the event loop.
const EXPLAINED_PER_CALL: usize = 16;
/// The largest `rate_over_ms`.
const RATE_OVER_MAX_MS: u64 = 10_000;

/// All paths with their descriptions. To add one, write a handler with `utoipa::path` and add a line here.
fn paths() -> OpenApiRouter<AppState> {
    #[cfg(feature = "small")]
    let paths = OpenApiRouter::new();
    #[cfg(not(feature = "small"))]
    let paths = OpenApiRouter::with_openapi(described::description());
    let paths = paths
        .routes(routes!(status))
        .routes(routes!(flows))
        .routes(routes!(slow::slow))
        .routes(routes!(why))
        .routes(routes!(conntrack))
        .routes(routes!(history::history, history::add_verdict))
        .routes(routes!(watch))
        .routes(routes!(usage::usage))
        .routes(routes!(flush))
        .routes(routes!(reload))
        .routes(routes!(stop))
        .routes(routes!(restart::progress, restart::restart))
        .routes(routes!(list_static, add_static, del_static))
        .routes(routes!(off::list_off, off::add_off, off::del_off))
        .routes(routes!(taps::add_taps, taps::del_taps))
        .routes(routes!(list_qos, set_qos, del_qos))
        .routes(routes!(list_reports))
        .routes(routes!(read_report));
    #[cfg(not(feature = "small"))]
    let paths = paths.routes(routes!(described::openapi));
    paths.routes(routes!(metrics))
}

/// Any error.
#[derive(IntoResponses)]
#[response(status = "default", description = "What went wrong, and what to do about it")]
#[expect(dead_code, reason = "names the schema of all errors")]
struct Refused(ErrorBody);

/// The paths of the control socket; `reports` is the directory of reports.
pub(super) fn router(calls: mpsc::Sender<Call>, reports: ReportsDirectory) -> Router {
    let (router, _) = paths().split_for_parts();
    with_fallbacks(with_page(router), calls, reports)
}

/// The paths that are served at the page's address: the page, and what it reads.
pub(super) fn page_router(calls: mpsc::Sender<Call>, reports: ReportsDirectory) -> Router {
    let (router, _) = OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(flows))
        .routes(routes!(slow::slow))
        .routes(routes!(why))
        .routes(routes!(history::history))
        .routes(routes!(usage::usage))
        .routes(routes!(list_reports))
        .routes(routes!(read_report))
        .split_for_parts();
    with_fallbacks(with_page(router), calls, reports)
}

fn with_page(router: Router<AppState>) -> Router<AppState> {
    router.route(page::DOCUMENT, get(page::document)).route(page::FILES, get(page::file))
}

/// The paths that are served at the metrics address.
pub(super) fn metrics_router(calls: mpsc::Sender<Call>) -> Router {
    with_fallbacks(Router::new().route("/metrics", get(metrics)), calls, ReportsDirectory::default())
}

fn with_fallbacks(router: Router<AppState>, calls: mpsc::Sender<Call>, reports: ReportsDirectory) -> Router {
    let state = AppState {
        owner: Share::of_owner(calls.clone()),
        readers: Share::of_readers(calls),
        bodies: Arc::new(Semaphore::new(BODIES_MAX)),
        reports,
    };
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(map_response(without_guess))
        .with_state(state)
}

/// Keeps a browser from taking an answer for another type, such as data for a script of the page.
async fn without_guess(mut answer: Response) -> Response {
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatusQuery {
    /// Measure the CPU time of the programs for the next five seconds: `costs.programs` of later answers will be new.
    /// Each run of a program of this machine costs two more readings of the clock meanwhile. Only for the owner; others
    /// get the figures of the last minute.
    #[serde(default)]
    #[param(required = false)]
    measure: bool,
}

/// Ports, counts, flows by state, costs, and what the kernel can do.
#[utoipa::path(get, path = "/v1/status", params(StatusQuery), responses((status = 200, body = Status), Refused))]
async fn status(
    State(state): Shared,
    client: Option<Extension<Client>>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(StatusQuery { measure }) = query.map_err(|why| bad(why.body_text()))?;
    let is_owner = client.as_ref().is_some_and(|Extension(client)| *client == Client::Owner);
    let share = state.share(client);
    if measure && is_owner {
        share.call(ANSWER_TIME, Call::MeasurePrograms).await?;
    }
    let make = async {
        let status = share.call(ANSWER_TIME, Call::Status).await?;
        serde_json::to_vec(&status).map_err(|why| internal(why.to_string()))
    };
    Ok(json(share.common(Common::Status, make).await?))
}

fn json(text: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text.into()).into_response()
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
    /// Only so many connections: those with the highest rates in bit/s, sorted by rate. Absent for all, in no order.
    #[serde(default)]
    #[param(minimum = 1, maximum = 10_000)]
    most: Option<usize>,
}

fn half_a_second() -> u64 {
    500
}

/// Every connection with at least one flow in the table.
#[utoipa::path(get, path = "/v1/flows", params(FlowsQuery), responses((status = 200, body = [Connection]), Refused))]
async fn flows(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(FlowsQuery { rate_over_ms, most }) = query.map_err(|why| bad(why.body_text()))?;
    let rate_over_ms = checked(rate_over_ms)?;
    if let Some(most) = most.filter(|most| !(1..=MOST_MAX).contains(most)) {
        return Err(bad(format!("most: {most} is not within 1 to {MOST_MAX}")));
    }
    let share = state.share(client);
    let list = || list_flows(Arc::clone(&share), Duration::from_millis(rate_over_ms), most);
    share.long.get(format!("flows {rate_over_ms} {most:?}"), &watched, list).await.map(json)
}

fn checked(rate_over_ms: u64) -> Result<u64, Refusal> {
    match rate_over_ms {
        0..=RATE_OVER_MAX_MS => Ok(rate_over_ms),
        _ => Err(bad(format!("rate_over_ms: {rate_over_ms} is not within 0 to {RATE_OVER_MAX_MS}"))),
    }
}

async fn list_flows(share: Arc<Share>, rate_over: Duration, most: Option<usize>) -> Result<Writer, Refusal> {
    let mut source = share.call(ANSWER_TIME, Call::Flows).await?;
    if !rate_over.is_zero() {
        source = on_other_thread(move || {
            source.sample();
            source
        })
        .await?;
        sleep(rate_over).await;
    }
    Ok(Box::new(move |pieces| match most {
        Some(most) => pieces.json(&busiest(source.list()?, most)?),
        None => pieces.json(&Items::new(source.list()?)),
    }))
}

impl AppState {
    fn share(&self, client: Option<Extension<Client>>) -> Arc<Share> {
        let is_owner = client.is_some_and(|Extension(client)| client == Client::Owner);
        Arc::clone(if is_owner { &self.owner } else { &self.readers })
    }
}

/// Does work on another thread.
async fn on_other_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    spawn_blocking(work).await.map_err(|why| internal(why.to_string()))
}

/// Explains why connections are fast or slow: the first hundred that match the selection.
#[utoipa::path(get, path = "/v1/why", params(Selection), responses((status = 200, body = Explanation), Refused))]
async fn why(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(selection) = query.map_err(|why| bad(why.body_text()))?;
    let share = state.share(client);
    let name = format!("why {selection:?}");
    share.long.get(name, &watched, || find_and_explain(Arc::clone(&share), selection)).await.map(json)
}

async fn find_and_explain(share: Arc<Share>, selection: Selection) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, |reply| Call::Find(selection, reply)).await?;
    let (connections, more) = explained(&share, job).await?;
    Ok(Box::new(move |pieces| pieces.json(&Explanation { connections, more })))
}

/// Explains the connections that a job finds, after a second look at them if it could change an answer. Returns how
/// many more there are, too.
async fn explained(share: &Share, job: Job<Found>) -> Result<(Vec<Explained>, u64), Refusal> {
    let found = on_other_thread(move || job.run()).await??;
    let first = explain(share, found.candidates.clone()).await?;
    let often_slow: HashSet<(u8, Tuple)> =
        found.candidates.iter().flat_map(Candidate::directions_often_slow).collect();
    let is_sure = |protocol: u8, why: &Why| {
        let reason = why.because.as_ref().map(|because| because.reason.as_str());
        !is_doubtful(reason, why.idle) && !often_slow.contains(&(protocol, why.tuple))
    };
    let are_sure =
        |one: &Explained| one.tracked && one.directions.iter().all(|why| is_sure(one.protocol, why));
    let all_are_sure = !first.is_empty() && first.iter().all(are_sure);
    let Found { candidates, more, search } = found;
    let Some(search) = search.filter(|_| !all_are_sure) else { return Ok((first, more)) };
    let again = on_other_thread(move || search.look_again(&candidates)).await?;
    let Found { candidates, more, .. } = again.map_err(|error| internal(error.to_string()))?;
    let mut explained = explain(share, candidates).await?;
    // What was sure at once may have gone since.
    for was in first {
        let id = |one: &Explained| (one.protocol, one.directions.first().map(|why| why.tuple));
        let Some(now) = explained.iter_mut().find(|now| id(now) == id(&was)) else {
            explained.extend(Some(was).filter(|was| was.tracked));
            continue;
        };
        for (was, direction) in was.directions.into_iter().zip(&mut now.directions) {
            if is_sure(now.protocol, &was) {
                *direction = was;
            }
        }
    }
    Ok((explained, more))
}

async fn explain(share: &Share, mut candidates: Vec<Candidate>) -> Result<Vec<Explained>, Refusal> {
    let mut connections = Vec::new();
    while !candidates.is_empty() {
        // Between two calls the event loop does other work.
        let some = candidates.drain(..candidates.len().min(EXPLAINED_PER_CALL)).collect();
        connections.extend(share.call(ANSWER_TIME, |reply| Call::Explain(some, reply)).await??);
    }
    Ok(connections)
}

/// Conntrack's table, with the packets that the fast path has forwarded added to its counts.
#[utoipa::path(get, path = "/v1/conntrack", responses((status = 200, body = TrackedTable), Refused))]
async fn conntrack(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
) -> Result<Response, Refusal> {
    let share = state.share(client);
    share.long.get("conntrack".to_owned(), &watched, || list_conntrack(Arc::clone(&share))).await.map(json)
}

/// A [`TrackedTable`] whose entries are read when they are written.
#[derive(Serialize)]
struct StreamedTable {
    counted: bool,
    entries: Items<Box<dyn Iterator<Item = Result<Tracked, Failure>> + Send>>,
}

async fn list_conntrack(share: Arc<Share>) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, Call::Conntrack).await?;
    Ok(Box::new(move |pieces| {
        let TrackedEntries { counted, entries } = job.run()?;
        pieces.json(&StreamedTable { counted, entries: Items::new(entries) })
    }))
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
    let share = state.share(client);
    let permit = share.watcher()?;
    let events = share.call(ANSWER_TIME, Call::Watch).await??;
    watched.begin();
    Ok(event_stream::lines(events, selection, permit))
}

/// Retires all learned flows. The answer is their number.
#[utoipa::path(post, path = "/v1/flush", responses((status = 200, body = Count), Refused))]
async fn flush(State(state): Shared) -> Answer<Count> {
    count_answer(state.owner.call(ANSWER_TIME, Call::Flush).await)
}

/// Reads the configuration file again, checks it as a start would, and applies what has changed: all of it or, after an
/// error, nothing. If a key needs a restart, nothing is applied unless the request is `partial`. The answer comes when
/// ports are attached and detached, after ten seconds at most.
#[utoipa::path(post, path = "/v1/reload", request_body = ReloadRequest, responses((status = 200, body = Reload), Refused))]
async fn reload(State(state): Shared, body: Body) -> Answer<Reload> {
    let request = match body.size_hint().exact() {
        Some(0) => ReloadRequest::default(),
        _ => state.read_json(body).await?,
    };
    Ok(Json(state.owner.call(RELOAD_TIME, |reply| Call::Reload(request, reply)).await??))
}

/// Detaches from all ports and ends the daemon. The answer comes when everything is undone.
#[utoipa::path(post, path = "/v1/stop", responses((status = 200, body = Count), Refused))]
async fn stop(State(state): Shared) -> Answer<Count> {
    count_answer(state.owner.call(STOP_TIME, Call::Stop).await.map(|()| 0))
}

/// All static flows and routes.
#[utoipa::path(get, path = "/v1/static", responses((status = 200, body = StaticTable), Refused))]
async fn list_static(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
) -> Result<Response, Refusal> {
    let share = state.share(client);
    let list = || {
        let share = Arc::clone(&share);
        async move {
            let table = share.call(ANSWER_TIME, Call::ListStatic).await?;
            Ok::<Writer, _>(Box::new(move |pieces| pieces.json(&table)))
        }
    };
    share.long.get("static".to_owned(), &watched, list).await.map(json)
}

/// Adds or replaces static flows and routes: all of them or, after an error, none. The answer is their number.
#[utoipa::path(post, path = "/v1/static", request_body = StaticTable, responses((status = 200, body = Count), Refused))]
async fn add_static(State(state): Shared, body: Body) -> Answer<Count> {
    let table: StaticTable = state.read_json(body).await?;
    table.check()?;
    count_answer(
        state.owner.call(ANSWER_TIME, |reply| Call::AddStatic(table, reply)).await?.map_err(Refusal::from),
    )
}

/// Removes static flows and routes. The answer is how many were removed.
#[utoipa::path(delete, path = "/v1/static", request_body = StaticRemoval, responses((status = 200, body = Count), Refused))]
async fn del_static(State(state): Shared, body: Body) -> Answer<Count> {
    let removal: StaticRemoval = state.read_json(body).await?;
    count_answer(
        state.owner.call(ANSWER_TIME, |reply| Call::DelStatic(removal, reply)).await?.map_err(Refusal::from),
    )
}

/// The queues of the ports that have some, with their counters, which are up to 0.2 s old.
#[utoipa::path(get, path = "/v1/qos", responses((status = 200, body = [QosStatus]), Refused))]
async fn list_qos(State(state): Shared, client: Option<Extension<Client>>) -> Answer<Vec<QosStatus>> {
    state.share(client).call(ANSWER_TIME, Call::Qos).await.map(Json)
}

/// Sets the queues of ports, by their names: those of all named ports or, after an error, none. What is queued stays
/// queued. The answer is the number of ports.
#[utoipa::path(post, path = "/v1/qos", request_body = BTreeMap<String, PortQos>, responses((status = 200, body = Count), Refused))]
async fn set_qos(State(state): Shared, body: Body) -> Answer<Count> {
    let table: BTreeMap<String, PortQos> = state.read_json(body).await?;
    check_qos(&table).map_err(bad)?;
    count_answer(
        state.owner.call(ANSWER_TIME, |reply| Call::SetQos(table, reply)).await?.map_err(Refusal::from),
    )
}

/// Removes the queues of ports. What is queued leaves first. The answer is the number of ports.
#[utoipa::path(delete, path = "/v1/qos", request_body = QosRemoval, responses((status = 200, body = Count), Refused))]
async fn del_qos(State(state): Shared, body: Body) -> Answer<Count> {
    let removal: QosRemoval = state.read_json(body).await?;
    count_answer(
        state.owner.call(ANSWER_TIME, |reply| Call::DelQos(removal, reply)).await?.map_err(Refusal::from),
    )
}

/// The newest 200 reports of the lab in the directory `page_reports`.
#[utoipa::path(get, path = "/v1/reports", responses((status = 200, body = [StoredReport]), Refused))]
async fn list_reports(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
) -> Result<Response, Refusal> {
    let share = state.share(client);
    let list = || async move {
        Ok::<Writer, _>(Box::new(move |pieces| pieces.json(&stored_reports::list(&state.reports.path())?)))
    };
    share.long.get("reports".to_owned(), &watched, list).await.map(json)
}

/// A report of the lab: a page that `shunt report` wrote.
#[utoipa::path(get, path = "/v1/reports/{name}", params(("name" = String, Path, description = "The name in the list")), responses(
    (status = 200, body = String, content_type = "text/html"), Refused
))]
async fn read_report(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let share = state.share(client);
    let read = || read_named(state.reports.path(), name.clone());
    share.long.get(format!("report {name}"), &watched, read).await.map(page::report)
}

async fn read_named(directory: PathBuf, name: String) -> Result<Writer, Refusal> {
    let missing = || Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("no report `{name}`")) };
    let named = name.clone();
    let file = on_other_thread(move || stored_reports::open(&directory, &named)).await??;
    let mut file = file.ok_or_else(missing)?;
    Ok(Box::new(move |pieces| {
        let copied = io::copy(&mut file, pieces);
        copied.map(drop).map_err(|why| Failure::new(FailureCode::Internal, format!("{name}: {why}")))
    }))
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), Refused
))]
async fn metrics(
    State(state): Shared,
    client: Option<Extension<Client>>,
) -> Result<impl IntoResponse, Refusal> {
    let share = state.share(client);
    let make = async {
        let source = share.call(ANSWER_TIME, Call::Metrics).await?;
        metrics::page(&source).map_err(|why| internal(why.to_string()))
    };
    Ok(([(CONTENT_TYPE, METRICS_TYPE)], share.common(Common::Metrics, make).await?))
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
