//! Errors of calls: an HTTP status, and a document with code, message and hint.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::body::json;
use super::types::{ErrorBody, ErrorDocument};

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    body: Box<ErrorBody>,
    retry_after_s: Option<u32>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            body: Box::new(ErrorBody {
                code: code.to_owned(),
                message: message.into(),
                hint: None,
            }),
            retry_after_s: None,
        }
    }

    pub(super) fn bad_request(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn forbidden(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "token",
            "the header `Authorization: Bearer TOKEN` is missing or wrong",
        )
    }

    /// This program or the host failed.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "host_failed", message)
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    pub(super) fn retry_after_s(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Sets the status to 404 if a copy or a watch failed with ENOENT.
    pub(super) fn or_not_found(mut self) -> Self {
        let is_missing = self
            .body
            .message
            .ends_with("No such file or directory (os error 2)");
        if is_missing && matches!(&*self.body.code, "copy_failed" | "watch_failed") {
            self.status = StatusCode::NOT_FOUND;
            self.body.code = "no_file".to_owned();
        }
        self
    }

    pub(super) fn code(&self) -> &str {
        &self.body.code
    }

    pub(super) fn into_body(self) -> ErrorBody {
        *self.body
    }

    /// Message, code and hint, for a server that does not start.
    pub(super) fn in_one_line(&self) -> String {
        let hint = self.body.hint.iter().map(|hint| format!("; {hint}"));
        format!(
            "{} ({}){}",
            self.body.message,
            self.body.code,
            hint.collect::<String>()
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry_after_s) = (self.status, self.retry_after_s);
        let mut response = json(status, &ErrorDocument { error: *self.body });
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
