//! The paths of `shunt off` and `shunt on`.

use super::{ANSWER_TIME, Answer, Call, Client, Refused, Shared, on_other_thread};
use crate::control::Job;
use axum::{Extension, Json, body::Body, extract::State};
use shunt_api::{Count, Failure, OffRemoval, OffRequest, OffRule};

/// The connections for which somebody has turned the fast path off.
#[utoipa::path(get, path = "/v1/off", responses((status = 200, body = [OffRule]), Refused))]
pub(super) async fn list_off(
    State(state): Shared,
    client: Option<Extension<Client>>,
) -> Answer<Vec<OffRule>> {
    Ok(Json(state.share(client).call(ANSWER_TIME, Call::ListOff).await?))
}

/// Turns the fast path off for some connections. The answer is the number of rules that there are now.
#[utoipa::path(post, path = "/v1/off", request_body = OffRequest, responses((status = 200, body = Count), Refused))]
pub(super) async fn add_off(State(state): Shared, body: Body) -> Answer<Count> {
    let request: OffRequest = state.read_json(body).await?;
    keep(state.owner.call(ANSWER_TIME, |reply| Call::AddOff(request, reply)).await?).await
}

/// Turns the fast path on again for the connections of a rule, or of all rules. The answer is the number of rules that
/// were removed.
#[utoipa::path(delete, path = "/v1/off", request_body = OffRemoval, responses((status = 200, body = Count), Refused))]
pub(super) async fn del_off(State(state): Shared, body: Body) -> Answer<Count> {
    let removal: OffRemoval = state.read_json(body).await?;
    keep(state.owner.call(ANSWER_TIME, |reply| Call::DelOff(removal, reply)).await?).await
}

/// Keeps a change across restarts, on another thread, and answers then.
async fn keep(changed: Result<(u64, Job<()>), Failure>) -> Answer<Count> {
    let (count, job) = changed?;
    on_other_thread(move || job.run()).await??;
    Ok(Json(Count { count }))
}
