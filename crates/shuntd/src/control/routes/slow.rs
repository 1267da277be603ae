//! The path of connections that Linux forwards.

use super::{
    ANSWER_TIME, Call, Client, Refused, Share, Shared, Writer, checked, explained, half_a_second, json,
    on_other_thread,
};
use crate::slow_connections::give_reasons;
use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;
use shunt_api::SlowTable;
use shunt_http::{Refusal, Watched, bad};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SlowQuery {
    /// The time over which rates are measured, in milliseconds: the answer takes that long. With 0, there are no rates.
    #[serde(default = "half_a_second")]
    #[param(required = false, maximum = 10_000)]
    rate_over_ms: u64,
    /// Says of so many connections, those with the highest rates, why they are slow.
    #[serde(default)]
    #[param(required = false, maximum = 1000)]
    because: usize,
}

/// The connections that Linux forwards, those with the highest rates first.
#[utoipa::path(get, path = "/v1/slow", params(SlowQuery), responses((status = 200, body = SlowTable), Refused))]
pub(super) async fn slow(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<SlowQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(SlowQuery { rate_over_ms, because }) = query.map_err(|why| bad(why.body_text()))?;
    let rate_over_ms = checked(rate_over_ms)?;
    if because > SlowTable::MOST {
        return Err(bad(format!("because: {because} is not within 0 to {}", SlowTable::MOST)));
    }
    let share = state.share(client);
    let list = || list_slow(Arc::clone(&share), Duration::from_millis(rate_over_ms), because);
    share.long.get(format!("slow {rate_over_ms} {because}"), &watched, list).await.map(json)
}

async fn list_slow(share: Arc<Share>, rate_over: Duration, because: usize) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, |reply| Call::Slow(!rate_over.is_zero(), reply)).await?;
    let sample = on_other_thread(move || job.run()).await??;
    sleep(rate_over).await;
    let mut table = on_other_thread(move || sample.run()).await??;
    let asked = table.connections.len().min(because);
    if let asked @ [_, ..] = &mut table.connections[..asked] {
        let names = asked.iter().map(|one| (one.protocol, one.orig)).collect();
        let job = share.call(ANSWER_TIME, |reply| Call::FindNamed(names, reply)).await?;
        give_reasons(asked, explained(&share, job).await?.0);
    }
    Ok(Box::new(move |pieces| pieces.json(&table)))
}
