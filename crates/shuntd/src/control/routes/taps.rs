//! The path of the programs by which `shunt verify` sees frames that XDP forwards.

use super::{Answer, Call, RELOAD_TIME, Refused, Shared, count_answer};
use axum::{body::Body, extract::State};
use shunt_api::{Count, TapRequest};

/// Attaches programs that see the frames which XDP forwards, for a time. The answer is the number of ports, when all
/// are attached.
#[utoipa::path(post, path = "/v1/taps", request_body = TapRequest, responses((status = 200, body = Count), Refused))]
pub(super) async fn add_taps(State(state): Shared, body: Body) -> Answer<Count> {
    let request: TapRequest = state.read_json(body).await?;
    count_answer(Ok(state.owner.call(RELOAD_TIME, |reply| Call::AddTaps(request, reply)).await??))
}

/// Detaches these programs. The answer is the number of ports that had one.
#[utoipa::path(delete, path = "/v1/taps", responses((status = 200, body = Count), Refused))]
pub(super) async fn del_taps(State(state): Shared) -> Answer<Count> {
    count_answer(state.owner.call(RELOAD_TIME, Call::DelTaps).await)
}
