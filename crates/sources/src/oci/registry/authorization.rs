//! Authorization: turns a `401` into a header, with Basic credentials or a token (distribution
//! project, "Token Authentication Specification", and its OAuth2 form).

use std::fmt;

use serde::Deserialize;
use ureq::SendBody;
use ureq::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};

use crate::http::url::{is_private_way, origin_shown, plain_url};
use crate::http::{Fault, check_retryable};
use crate::oci::error::OciError;
use crate::oci::registry::Registry;
use crate::oci::registry::credentials::{self, Credentials};
use crate::oci::registry::docker_config::Login;
use crate::oci::registry::error::RegistryError;
use spec::document::excerpt;
use spec::oci::challenge::{Challenge, challenges};
use spec::percent::{COMPONENT, percent_encoded};

const TOKEN_BYTES_MAX: u64 = 1 << 20;
/// The `client_id` for token services.
const CLIENT: &str = "runner";

/// Value of the `Authorization` header. [`fmt::Debug`] hides it.
#[derive(Clone)]
pub(super) struct Authorization {
    pub(super) header: HeaderValue,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authorization")
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl Registry {
    /// Returns the header that answers a `401`; `None` without a supported challenge or
    /// credentials.
    ///
    /// # Errors
    /// [`Fault`]: unreadable credentials, or the token service returned no token.
    pub(super) fn authorized(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Authorization>, Fault<OciError>> {
        let offered: Vec<Challenge> = headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(challenges)
            .collect();
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
        if let Some(asked) = bearer {
            return self.token(&asked).map(Some);
        }
        let credentials = self.credentials()?;
        match (offered.contains(&Challenge::Basic), credentials) {
            (true, Some(credentials)) => basic(&credentials)
                .map(Some)
                .ok_or_else(|| Fault::Unusable("the password fits into no header".to_owned())),
            _ => Ok(None),
        }
    }

    pub(super) fn credentials(&self) -> Result<Option<Credentials>, Fault<OciError>> {
        if let Some(found) = self.credentials.get() {
            return Ok(found.clone());
        }
        let found = credentials::find(&self.reference, &self.connection)?;
        Ok(self.credentials.get_or_init(|| found).clone())
    }

    fn token(&self, asked: &TokenChallenge<'_>) -> Result<Authorization, Fault<OciError>> {
        let realm = self.realm(asked.realm)?;
        let credentials = self.credentials()?;
        let response = match credentials.as_ref().map(|found| &found.login) {
            Some(Login::Identity(identity)) => {
                let form = asked.form(identity);
                let length = form.len();
                let mut body = form.as_bytes();
                let request = Request::post(realm.clone())
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .header(header::CONTENT_LENGTH, length)
                    .body(SendBody::from_reader(&mut body));
                self.sent(request)?
            }
            login => {
                let url = asked.url(&realm, login)?;
                let mut request = Request::get(url);
                if let Some(authorization) = credentials.as_ref().and_then(basic) {
                    request = request.header(header::AUTHORIZATION, authorization.header);
                }
                self.sent(request.body(SendBody::none()))?
            }
        };
        let shown = format!("GET {}{}", origin_shown(&realm), excerpt(realm.path()));
        self.token_in(response, &shown, credentials.as_ref())
    }

    fn token_in(
        &self,
        response: crate::http::Response,
        shown: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Authorization, Fault<OciError>> {
        let status = response.status;
        check_retryable(&response)?;
        let unusable = |cause: String| Fault::Unusable(format!("{shown}: {cause}"));
        if status.is_client_error() {
            return Err(RegistryError::Unauthorized {
                request: shown.to_owned(),
                credentials: credentials.map(|found| found.origin.clone()),
                detail: self.error_detail(response),
            }
            .into());
        }
        if status != StatusCode::OK {
            return Err(unusable(format!("the answer was {}", status.as_u16())));
        }
        let bytes = response.bytes(&self.client, TOKEN_BYTES_MAX);
        let bytes = bytes.map_err(|error| self.fault(error))?;
        // The parser's message could quote a part of the token.
        let response: TokenResponse = serde_json::from_slice(&bytes)
            .map_err(|_text| unusable("the answer is not a JSON object with a token".to_owned()))?;
        let token = response
            .token
            .or(response.access_token)
            .filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| unusable("the answer has no usable `token`".to_owned()))?;
        authorization("Bearer", &token)
            .ok_or_else(|| unusable("the token fits into no header".to_owned()))
    }

    /// Validates the URL of the token service. Plain HTTP is allowed only for a registry that may
    /// use it, and for loopback.
    fn realm(&self, realm: &str) -> Result<Uri, Fault<OciError>> {
        let refused = |found: String| {
            Fault::Unusable(format!(
                "the registry names the token service {found}, expected https://HOST[/PATH]"
            ))
        };
        let url = plain_url(realm)
            .filter(|_| !realm.contains('#'))
            .ok_or_else(|| refused("of no usable URL".to_owned()))?;
        let is_own = url.host().map(str::to_ascii_lowercase) == self.host();
        let is_here = is_private_way(&url);
        let is_tls = url.scheme_str() == Some("https");
        match is_tls || (self.connection.insecure && (is_own || is_here)) {
            true => Ok(url),
            false => Err(refused(origin_shown(&url))),
        }
    }
}

struct TokenChallenge<'header> {
    realm: &'header str,
    service: Option<&'header str>,
    scope: Option<&'header str>,
}

impl TokenChallenge<'_> {
    fn url(&self, realm: &Uri, login: Option<&Login>) -> Result<Uri, Fault<OciError>> {
        let mut url = realm.to_string();
        let mut mark = if realm.query().is_some() { '&' } else { '?' };
        let mut add = |name: &str, value: &str| {
            url.push(mark);
            url.push_str(&query_pair(name, value));
            mark = '&';
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
        plain_url(&url)
            .ok_or_else(|| Fault::Unusable("the token service has no usable URL".to_owned()))
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

/// Returns `None` for an identity token and for credentials that are not valid in a header.
fn basic(credentials: &Credentials) -> Option<Authorization> {
    match &credentials.login {
        Login::Password { .. } => authorization("Basic", &credentials.login.written()),
        Login::Identity(_) => None,
    }
}

fn authorization(scheme: &str, value: &str) -> Option<Authorization> {
    let mut header = HeaderValue::from_str(&format!("{scheme} {value}")).ok()?;
    header.set_sensitive(true);
    Some(Authorization { header })
}

fn query_pair(name: &str, value: &str) -> String {
    format!("{name}={}", percent_encoded(value, COMPONENT))
}
