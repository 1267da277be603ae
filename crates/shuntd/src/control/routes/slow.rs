//! The path of connections that Linux forwards.

use super::{
    ANSWER_TIME, Call, Client, RateQuery, Refused, Share, Shared, Writer, checked, json, on_other_thread,
};
use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use shunt_api::SlowTable;
use shunt_http::{Refusal, Watched, bad};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// The connections that Linux forwards, those with the highest rates first.
#[utoipa::path(get, path = "/v1/slow", params(RateQuery), responses((status = 200, body = SlowTable), Refused))]
pub(super) async fn slow(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<RateQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(RateQuery { rate_over_ms }) = query.map_err(|why| bad(why.body_text()))?;
    let rate_over_ms = checked(rate_over_ms)?;
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
