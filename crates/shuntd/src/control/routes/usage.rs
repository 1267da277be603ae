//! The path of what hosts use.

use super::{ANSWER_TIME, Call, Client, Refused, Share, Shared, Writer, json, on_other_thread};
use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use shunt_api::{Usage, UsageQuery};
use shunt_http::{Refusal, Watched, bad};
use std::sync::Arc;

/// What each host of the local side has sent and received in a period.
#[utoipa::path(get, path = "/v1/usage", params(UsageQuery), responses((status = 200, body = Usage), Refused))]
pub(super) async fn usage(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|why| bad(why.body_text()))?;
    let share = state.share(client);
    let name = format!("usage {}", query.query());
    share.long.get(name, &watched, || read(Arc::clone(&share), query)).await.map(json)
}

async fn read(share: Arc<Share>, query: UsageQuery) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, |reply| Call::Usage(query, reply)).await??;
    let usage = on_other_thread(move || job.run()).await??;
    Ok(Box::new(move |pieces| pieces.json(&usage)))
}
