//! Answers to requests that are refused or fail.

use axum::{
    Json,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use shunt_api::{ErrorBody, Failure, FailureCode};

/// The error of a handler; it becomes an answer with an [`ErrorBody`].
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The HTTP status code.
    pub status: StatusCode,
    /// The failure, as it appears in the body.
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

/// The fallback of a router: 404.
pub async fn unknown_path(uri: Uri) -> Refusal {
    Refusal { status: StatusCode::NOT_FOUND, ..bad(format!("no such path: {}", uri.path())) }
}

/// The fallback of a router for methods: 405.
pub async fn unknown_method(method: Method, uri: Uri) -> Refusal {
    Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        ..bad(format!("{} does not support {method}", uri.path()))
    }
}

/// The request is wrong.
pub fn bad(why: impl Into<String>) -> Refusal {
    Failure::new(FailureCode::BadRequest, why).into()
}

/// The request is right, but the server failed.
pub fn internal(why: impl Into<String>) -> Refusal {
    Failure::new(FailureCode::Internal, why).into()
}
