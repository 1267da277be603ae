//! `shunt lab agent --lend`: lends a port to `shunt check` on the machine at the other end of its cable.

use crate::output::write_stderr;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State, rejection::JsonRejection},
    routing::{get, post},
};
use shunt_api::{Failure, FailureCode};
use shunt_http::{Refusal, bad, internal, unknown_method, unknown_path};
use shunt_inspect::check::{Answer, Call, LentPort};
use shunt_lab::{Conditions, dut::About};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{task::spawn_blocking, time::interval};

/// Limit of a request: the longest burst of a case takes an eighth of this.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// How often the lease of a check is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The paths of an agent that lends a port.
pub(super) fn router(port: Arc<LentPort>) -> Router {
    let about = About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cpus: Vec::new(),
        lends: Some(port.name().to_owned()),
        conditions: Conditions::of_this_machine(),
    };
    Router::new()
        .route("/v1/agent", get(move || async move { Json(about) }))
        .route("/v1/partner", post(partner))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(port)
}

async fn partner(
    State(port): State<Arc<LentPort>>,
    call: Result<Json<Call>, JsonRejection>,
) -> Result<Json<Answer>, Refusal> {
    let Json(call) = call.map_err(|error| bad(error.body_text()))?;
    let answered = spawn_blocking(move || port.answer(call)).await;
    let answered = answered.map_err(|error| internal(error.to_string()))?;
    answered.map(Json).map_err(|why| Failure::new(FailureCode::PortBusy, why).into())
}

/// Takes the port back from checks that have gone, without an end; only waits if no port is lent.
pub(super) async fn watch(port: Option<Arc<LentPort>>) {
    let Some(port) = port else { return pending().await };
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        let looked_at = Arc::clone(&port);
        if let Ok(Err(why)) = spawn_blocking(move || looked_at.expire()).await {
            write_stderr(&format!("warning: a check has gone, and {why}\n"));
        }
    }
}

/// Restores the port before the agent ends.
pub(super) async fn close(port: Option<Arc<LentPort>>) -> anyhow::Result<()> {
    let Some(port) = port else { return Ok(()) };
    let closed = spawn_blocking(move || port.close()).await?;
    closed.map_err(|why| Failure::new(FailureCode::Internal, why).into())
}
