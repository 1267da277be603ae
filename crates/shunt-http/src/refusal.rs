//! Requests that are not done.

use axum::{
    Json,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use shunt_api::{ErrorBody, Failure, FailureCode};

/// The answer to a request that is refused.
pub(crate) fn refusal(failure: Failure) -> Response {
    Refusal::from(failure).into_response()
}

/// What a handler answers instead.
#[derive(Debug)]
pub struct Refusal {
    /// Of HTTP.
    pub status: StatusCode,
    /// Why.
    pub failure: Failure,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            FailureCode::BadRequest | FailureCode::Usage => StatusCode::BAD_REQUEST,
            FailureCode::Unauthorized => StatusCode::UNAUTHORIZED,
            FailureCode::ReadOnly => StatusCode::FORBIDDEN,
            FailureCode::PortMissing => StatusCode::NOT_FOUND,
            FailureCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::CONFLICT,
        };
        Self { status, failure }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.failure })).into_response()
    }
}

/// For a router's fallback.
pub async fn unknown_path(uri: Uri) -> Refusal {
    Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("there is no {}", uri.path())) }
}

/// For a router's fallback of methods.
pub async fn unknown_method(method: Method, uri: Uri) -> Refusal {
    Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        ..bad(format!("{} does not take {method}", uri.path()))
    }
}

/// It makes no sense.
pub fn bad(why: impl Into<String>) -> Refusal {
    Failure::new(FailureCode::BadRequest, why).into()
}

/// It makes sense, and cannot be done.
pub fn internal(why: impl Into<String>) -> Refusal {
    Failure::new(FailureCode::Internal, why).into()
}
