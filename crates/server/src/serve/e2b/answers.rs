//! The two forms of errors: those of the service and of `/files`, and those of the Connect protocol.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use crate::serve::body;
use crate::serve::error::ApiError;

/// What the SDKs take for a sandbox that has ended.
const NOT_FOUND: &str = "The sandbox was not found";

pub(super) fn unsupported(what: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", what)
        .with_hint("docs/e2b.md has a table of what is supported")
}

pub(super) fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "token", message)
}

/// An error as a number and a message.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    message: String,
    /// Whether the client may ask again soon.
    is_busy: bool,
}

impl Problem {
    /// As the proxy of E2B says it.
    pub(super) fn not_running() -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            message: NOT_FOUND.to_owned(),
            is_busy: false,
        }
    }

    /// That of the proxy, instead of that of the service.
    pub(super) fn or_not_running(self) -> Self {
        match self.status {
            StatusCode::NOT_FOUND => Self::not_running(),
            _ => self,
        }
    }

    /// As the service says it.
    pub(super) fn no_sandbox() -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            ..Self::not_running()
        }
    }
}

fn message_of(error: ApiError) -> (String, String) {
    let body = error.into_body();
    let hint = body
        .hint
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default();
    let text = format!("{} ({}){hint}", body.message, body.code);
    (body.code, text)
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let status = error.status;
        let (code, message) = message_of(error);
        match &*code {
            "no_sandbox" | "sandbox_ending" => Self::not_running(),
            _ => Self {
                status,
                message,
                is_busy: status == StatusCode::TOO_MANY_REQUESTS,
            },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = json!({"code": self.status.as_u16(), "message": self.message});
        let mut response = body::json(self.status, &document);
        if self.is_busy {
            // The SDKs would wait for a place for as long as a call may take.
            response
                .headers_mut()
                .insert("should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// An error of the Connect protocol.
#[derive(Debug, Serialize)]
pub(super) struct Unary {
    pub(super) code: &'static str,
    pub(super) message: String,
    #[serde(skip)]
    status: StatusCode,
}

impl From<ApiError> for Unary {
    fn from(error: ApiError) -> Self {
        let status = error.status;
        let (code, message) = message_of(error);
        // The statuses are those that the protocol has for its codes.
        let (name, status) = match (status, &*code) {
            (_, "no_sandbox" | "sandbox_ending") => {
                return Self {
                    code: "unavailable",
                    message: NOT_FOUND.to_owned(),
                    status: StatusCode::SERVICE_UNAVAILABLE,
                };
            }
            (StatusCode::NOT_FOUND, _) | (_, "program_not_found") => {
                ("not_found", StatusCode::NOT_FOUND)
            }
            (StatusCode::UNAUTHORIZED, _) => ("unauthenticated", StatusCode::UNAUTHORIZED),
            (StatusCode::FORBIDDEN, _) => ("permission_denied", StatusCode::FORBIDDEN),
            (StatusCode::NOT_IMPLEMENTED, _) => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
            (StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS, _) => {
                ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
            }
            (_, "exists") => ("already_exists", StatusCode::CONFLICT),
            (StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY, _) => {
                ("failed_precondition", StatusCode::BAD_REQUEST)
            }
            (status, _) if status.is_client_error() => {
                ("invalid_argument", StatusCode::BAD_REQUEST)
            }
            _ => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self {
            code: name,
            message,
            status,
        }
    }
}

impl Unary {
    /// The time of a command was over.
    pub(super) fn timed_out() -> Self {
        Self {
            code: "deadline_exceeded",
            message: "the command was ended at its timeout".to_owned(),
            status: StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl IntoResponse for Unary {
    fn into_response(self) -> Response {
        body::json(self.status, &self)
    }
}
