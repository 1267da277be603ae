//! The paths of `shunt restart`.

use super::{ANSWER_TIME, Answer, Call, Client, Refused, Shared};
use axum::{Extension, Json, extract::State};
use shunt_api::Restart;

/// Starts the next daemon, which takes over flows and attachments without a gap, or says why it cannot. The answer
/// comes at once; `GET` says how far the next daemon is.
#[utoipa::path(post, path = "/v1/restart", responses((status = 200, body = Restart), Refused))]
pub(super) async fn restart(State(state): Shared) -> Answer<Restart> {
    Ok(Json(state.owner.call(ANSWER_TIME, Call::Restart).await??))
}

/// How far the restart is that was asked for last.
#[utoipa::path(get, path = "/v1/restart", responses((status = 200, body = Restart), Refused))]
pub(super) async fn progress(State(state): Shared, client: Option<Extension<Client>>) -> Answer<Restart> {
    Ok(Json(state.share(client).call(ANSWER_TIME, Call::RestartProgress).await?))
}
