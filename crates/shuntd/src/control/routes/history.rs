//! The path of `shunt history`.

use super::{ANSWER_TIME, Answer, Call, Client, Refused, Shared, Writer, bad, count_answer, json};
use crate::{control::share::Share, history::Range};
use axum::{
    Extension,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;
use shunt_api::{Count, HistoryTable, Verified};
use shunt_http::{Refusal, Watched};
use std::sync::Arc;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The time until now, in seconds.
    #[serde(default = "a_day")]
    #[param(required = false, minimum = 1, maximum = 86_400)]
    for_s: u64,
    /// Merge the minutes into at most so many rows of equal length, and one more for each gap; absent for a row for
    /// each minute.
    #[serde(default)]
    #[param(minimum = 1)]
    rows: Option<u64>,
}

fn a_day() -> u64 {
    HistoryTable::KEPT_S
}

/// Traffic of the last day by minutes, and what happened.
#[utoipa::path(get, path = "/v1/history", params(HistoryQuery), responses((status = 200, body = HistoryTable), Refused))]
pub(super) async fn history(
    State(state): Shared,
    client: Option<Extension<Client>>,
    Extension(watched): Extension<Watched>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let range = checked(query)?;
    let share = state.share(client);
    let name = format!("history {range:?}");
    share.long.get(name, &watched, || merge(Arc::clone(&share), range)).await.map(json)
}

/// Notes what `shunt verify` has found. The answer is 1.
#[utoipa::path(post, path = "/v1/history", request_body = Verified, responses((status = 200, body = Count), Refused))]
pub(super) async fn add_verdict(State(state): Shared, body: Body) -> Answer<Count> {
    let verified: Verified = state.read_json(body).await?;
    count_answer(state.owner.call(ANSWER_TIME, |reply| Call::Verified(verified, reply)).await.map(|()| 1))
}

fn checked(query: Result<Query<HistoryQuery>, QueryRejection>) -> Result<Range, Refusal> {
    let Query(HistoryQuery { for_s, rows }) = query.map_err(|why| bad(why.body_text()))?;
    if !(1..=HistoryTable::KEPT_S).contains(&for_s) {
        return Err(bad(format!("for_s: {for_s} is not within 1 to {}", HistoryTable::KEPT_S)));
    }
    if rows == Some(0) {
        return Err(bad("rows: at least 1"));
    }
    Ok(Range { for_s, rows })
}

async fn merge(share: Arc<Share>, range: Range) -> Result<Writer, Refusal> {
    let job = share.call(ANSWER_TIME, |reply| Call::History(range, reply)).await?;
    Ok(Box::new(move |pieces| pieces.json(&job.run()?)))
}
