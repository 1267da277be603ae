//! The description of all requests, made from the handlers and their types.

use super::{Refused, json, paths};
use axum::{body::Bytes, response::Response};
use shunt_api::ErrorBody;
use shunt_http::{Refusal, internal};
use std::sync::LazyLock;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    components(schemas(ErrorBody)),
    info(
        title = "shuntd",
        description = "The control socket of the Shunt daemon: HTTP/1.1 over a Unix socket.\n\n\
                   `curl --unix-socket /run/shunt/default.sock http://localhost/v1/status`",
        version = "1",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    )
)]
struct Description;

/// The part that stands before the paths.
pub(super) fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// The description of the control socket, as OpenAPI.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    paths().into_openapi()
}

/// This description, as OpenAPI.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object), Refused))]
pub(super) async fn openapi() -> Result<Response, Refusal> {
    static TEXT: LazyLock<Result<Bytes, String>> = LazyLock::new(|| {
        serde_json::to_vec(&openapi_document()).map(Bytes::from).map_err(|why| why.to_string())
    });
    TEXT.clone().map(json).map_err(internal)
}
