//! The path of connections that Linux forwards.

use super::{
    ANSWER_TIME, Call, Client, FlowsQuery, Refused, Share, Shared, Writer, checked, json, on_other_thread,
};
use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use shunt_api::SlowTable;
use shunt_http::{Refusal, Watched};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// The connections that Linux forwards, those with the highest rates first.
#[utoipa::path(get, path = "/v1/slow", params(FlowsQuery), responses((status = 200, body = SlowTable), Refused))]
pub(super) async fn slow(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<FlowsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let rate_over_ms = checked(query)?;
    let share = state.share(client);
    let list = || list_slow(Arc::clone(&share), Duration::from_millis(rate_over_ms));
    share.long.get(format!("slow {rate_over_ms}"), &watched, list).await.map(json)
}

async fn list_slow(share: Arc<Share>, rate_over: Duration) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, |reply| Call::Slow(!rate_over.is_zero(), reply)).await?;
    let sample = on_other_thread(move || job.run()).await??;
    sleep(rate_over).await;
    Ok(Box::new(move |pieces| pieces.json(&sample.run()?)))
}
