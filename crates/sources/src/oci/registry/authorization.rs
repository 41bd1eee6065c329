//! Answers a `401` with an `Authorization` header: Basic credentials or a token (distribution
//! project, "Token Authentication Specification", and its OAuth2 form).

use std::io::Read;

use reader::{parse_with, put_part, split_parts};
use serde::Deserialize;
use ureq::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};

use crate::answers;
use crate::http::url::{format_origin, is_tls_or_loopback, parse_url, request_url};
use crate::http::{AttemptError, Response, authorization, check_retryable};
use crate::oci::error::OciError;
use crate::oci::registry::Registry;
use crate::oci::registry::credentials::{self, Credentials};
use crate::oci::registry::docker_config::Login;
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::requests::transfer_error;
use spec::document::excerpt;
use spec::oci::challenge::{Challenge, challenges};
use spec::parse_permit::ParsePermit;
use spec::percent::{COMPONENT, percent_encoded};
use sys::allocator::keep_from_children;

/// Longer than any header: what is parsed of it is in the memory that children do not get, of which there is little.
const TOKEN_BYTES_MAX: u64 = 128 << 10;
/// The fetcher keeps no buffer with the token, or the credential, that such a connection has.
const CLOSE: &str = "close";
/// The `client_id` for token services.
const CLIENT: &str = "runner";

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    /// Creates the header for the challenges of a `401`; `None` without a supported challenge or
    /// without credentials.
    ///
    /// # Errors
    /// [`AttemptError`]: unusable credentials, or the token service returned no token. Its requests
    /// were already retried.
    pub(super) fn authorize(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, AttemptError<OciError>> {
        let offered = offered(headers).map_err(|reason| {
            AttemptError::Unusable(format!("the header WWW-Authenticate is not read: {reason}"))
        })?;
        let bearer = offered.iter().find_map(|challenge| match challenge {
            Challenge::Bearer {
                realm,
                service,
                scope,
            } => Some(TokenChallenge {
                realm,
                service: service.as_deref(),
                scope: scope.as_deref(),
            }),
            Challenge::Basic => None,
        });
        if let Some(challenge) = bearer {
            return self.fetch_token(&challenge).map(Some);
        }
        if !offered.contains(&Challenge::Basic) {
            return Ok(None);
        }
        let Some(credentials) = self.credentials()? else {
            return Ok(None);
        };
        basic(credentials).map(Some).ok_or_else(|| {
            let problem = "has an identity token, but the registry asks for a user and a password";
            RegistryError::Credentials {
                registry: self.reference.registry.clone(),
                origin: credentials.origin.clone(),
                problem: problem.to_owned(),
                source: None,
            }
            .into()
        })
    }

    fn credentials(&self) -> Result<Option<&Credentials>, AttemptError<OciError>> {
        if let Some(found) = self.credentials.get() {
            return Ok(found.as_ref());
        }
        let found = credentials::find(&self.reference, &self.connection)?;
        Ok(self.credentials.get_or_init(|| found).as_ref())
    }

    fn fetch_token(
        &self,
        challenge: &TokenChallenge<'_>,
    ) -> Result<HeaderValue, AttemptError<OciError>> {
        let realm = self.parse_realm(challenge.realm)?;
        let credentials = self.credentials()?;
        let login = credentials.map(|found| &found.login);
        let method = match login {
            Some(Login::Identity(_)) => "POST",
            _ => "GET",
        };
        let origin = format_origin(&realm);
        let name = format!("{method} {origin}{}", excerpt(realm.path()));
        Ok(self.retry_named(&|| name.clone(), &mut || {
            let response = match login {
                Some(Login::Identity(identity)) => {
                    let form = keep_from_children(|| challenge.form(identity));
                    let length = form.len();
                    let mut body = form.as_bytes();
                    let request = Request::post(realm.clone())
                        .header(header::CONNECTION, CLOSE)
                        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                        .header(header::CONTENT_LENGTH, length)
                        .body(Some(&mut body as &mut dyn Read));
                    self.send_http(request)?
                }
                login => {
                    let url = keep_from_children(|| challenge.url(&realm, login))?;
                    let mut request = Request::get(url).header(header::CONNECTION, CLOSE);
                    if let Some(authorization) = credentials.and_then(basic) {
                        request = request.header(header::AUTHORIZATION, authorization);
                    }
                    self.send_http(request.body(None))?
                }
            };
            self.read_token(response.map_err(transfer_error)?, &name, credentials)
        })?)
    }

    fn read_token(
        &self,
        response: Response,
        request: &str,
        credentials: Option<&Credentials>,
    ) -> Result<HeaderValue, AttemptError<OciError>> {
        let status = response.status;
        check_retryable(&response)?;
        if status.is_client_error() {
            // 400 is how OAuth2 refuses an identity token (RFC 6749, 5.2).
            let is_refusal = match credentials.map(|found| &found.login) {
                Some(Login::Identity(_)) => matches!(status.as_u16(), 400 | 401 | 403),
                _ => matches!(status.as_u16(), 401 | 403),
            };
            let (request, detail) = (request.to_owned(), self.error_detail(response));
            return Err(if is_refusal {
                RegistryError::Unauthorized {
                    request,
                    credentials: credentials.map(|found| found.origin.clone()),
                    detail,
                }
            } else {
                RegistryError::Refused {
                    request,
                    status: status.as_u16(),
                    detail,
                }
            }
            .into());
        }
        if status != StatusCode::OK {
            return Err(AttemptError::unexpected_status(status));
        }
        let bytes = keep_from_children(|| response.bytes(&self.client, TOKEN_BYTES_MAX));
        let bytes = bytes.map_err(transfer_error)?;
        let unusable = |cause: &str| AttemptError::Unusable(cause.to_owned());
        // The parser's message could quote a part of the token.
        let response: TokenResponse = answers::parse_secret(&bytes)
            .map_err(|_text| unusable("the answer is not a JSON object with a token"))?;
        [response.token, response.access_token]
            .into_iter()
            .flatten()
            .find(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
            .and_then(|token| authorization("Bearer", token.as_bytes()))
            .ok_or_else(|| unusable("the answer has no usable `token`"))
    }

    /// Parses the URL of the token service. Plain HTTP is allowed only if the registry may use it,
    /// to the host of the registry and to loopback.
    fn parse_realm(&self, realm: &str) -> Result<Uri, AttemptError<OciError>> {
        let refused = |found: String| {
            AttemptError::Unusable(format!(
                "the URL of the token service is {found}, expected https://HOST[/PATH]"
            ))
        };
        let url = parse_url(realm)
            .filter(|_| !realm.contains('#'))
            .ok_or_else(|| refused("invalid".to_owned()))?;
        let is_own = url.host().map(str::to_ascii_lowercase) == self.host();
        let is_tls = url.scheme_str() == Some("https");
        let may_be_plain = self.connection.insecure && (is_own || is_tls_or_loopback(&url));
        if !is_tls && !may_be_plain {
            return Err(refused(format_origin(&url)));
        }
        Ok(url)
    }
}

/// What the `WWW-Authenticate` headers offer, parsed in a process without rights.
fn offered(headers: &HeaderMap) -> Result<Vec<Challenge>, String> {
    let mut values = Vec::new();
    for value in headers.get_all(header::WWW_AUTHENTICATE) {
        put_part(value.as_bytes(), &mut values);
    }
    let parse = |permit: &ParsePermit, values: &[u8]| -> Vec<Challenge> {
        let values = split_parts(values).unwrap_or_default().into_iter();
        let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
        texts.flat_map(|text| challenges(permit, text)).collect()
    };
    let mut offered = parse_with(&values, &parse)?;
    offered.retain(Challenge::is_possible);
    Ok(offered)
}

struct TokenChallenge<'header> {
    realm: &'header str,
    service: Option<&'header str>,
    scope: Option<&'header str>,
}

impl TokenChallenge<'_> {
    fn url(&self, realm: &Uri, login: Option<&Login>) -> Result<Uri, AttemptError<OciError>> {
        let mut url = realm.to_string();
        let mut separator = if realm.query().is_some() { '&' } else { '?' };
        let mut add = |name: &str, value: &str| {
            url.push(separator);
            url.push_str(&query_pair(name, value));
            separator = '&';
        };
        if let Some(service) = self.service {
            add("service", service);
        }
        // Each scope becomes its own parameter.
        for scope in self.scope.into_iter().flat_map(|scope| scope.split(' ')) {
            if !scope.is_empty() {
                add("scope", scope);
            }
        }
        if let Some(Login::Password { user, .. }) = login {
            add("account", user);
        }
        request_url(&url)
    }

    fn form(&self, identity: &str) -> String {
        let mut pairs = vec![
            query_pair("grant_type", "refresh_token"),
            query_pair("client_id", CLIENT),
            query_pair("refresh_token", identity),
        ];
        pairs.extend(self.service.map(|service| query_pair("service", service)));
        pairs.extend(self.scope.map(|scope| query_pair("scope", scope)));
        pairs.join("&")
    }
}

/// Returns `None` for an identity token.
fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    match &credentials.login {
        Login::Password { .. } => {
            let encoded = keep_from_children(|| credentials.login.encode());
            authorization("Basic", encoded.as_bytes())
        }
        Login::Identity(_) => None,
    }
}

fn query_pair(name: &str, value: &str) -> String {
    format!("{name}={}", percent_encoded(value, COMPONENT))
}
