//! The provider and its answers. The types of the library are used only here.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClientAuthMethod,
    CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey, CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm as Alg, CoreProviderMetadata, CoreRevocableToken,
    CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AsyncHttpClient, AuthType, AuthorizationCode, ClaimsVerificationError,
    ClientId, ClientSecret, CsrfToken, EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet,
    EndpointSet, HttpRequest, HttpResponse, IdToken, IdTokenClaims, IdTokenFields, IssuerUrl,
    Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope,
    SignatureVerificationError, StandardErrorResponse, StandardTokenResponse, TokenResponse,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::OidcProviderConfig;
use super::config::is_safe_url;
use super::error::SignInError;
use super::http::{HttpError, ProviderHttp};
use super::login::{LOGIN_MS, PendingLogin};
use super::person::{self, Person};
use crate::error::Error;
use sluicegate_policy::finding;

/// Time for which a description is valid, in milliseconds: an hour.
const GOOD_MS: i64 = 60 * 60 * 1_000;

/// Least age at which a description is fetched again because a key is not in it, in milliseconds.
const KEYS_MS: i64 = 10_000;

/// Tolerated difference between the provider's clock and ours, in milliseconds.
const SKEW_MS: i64 = 60_000;

/// Longest reason that is logged, in characters: a part of it is the provider's own text.
const TOLD_CHARS_MAX: usize = 300;

/// Algorithms by which tokens may be signed: with a key that only the provider has, not the client's secret.
const ALGORITHMS: [Alg; 9] = [
    Alg::RsaSsaPkcs1V15Sha256,
    Alg::RsaSsaPkcs1V15Sha384,
    Alg::RsaSsaPkcs1V15Sha512,
    Alg::RsaSsaPssSha256,
    Alg::RsaSsaPssSha384,
    Alg::RsaSsaPssSha512,
    Alg::EcdsaP256Sha256,
    Alg::EcdsaP384Sha384,
    Alg::EdDsa,
];

/// Claims that the specification does not name: among them, groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct GroupClaims(BTreeMap<String, serde_json::Value>);

impl AdditionalClaims for GroupClaims {}

type Encryption = CoreJweContentEncryptionAlgorithm;
type Claims = IdTokenClaims<GroupClaims, CoreGenderClaim>;
type OidcIdToken = IdToken<GroupClaims, CoreGenderClaim, Encryption, Alg>;
type OidcTokenFields =
    IdTokenFields<GroupClaims, EmptyExtraTokenFields, CoreGenderClaim, Encryption, Alg>;
type OidcClient = openidconnect::Client<
    GroupClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    Encryption,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<OidcTokenFields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The provider.
pub(super) struct Provider {
    http: ProviderHttp,
    issuer: IssuerUrl,
    client: (ClientId, ClientSecret),
    redirect_url: RedirectUrl,
    scopes: Vec<Scope>,
    groups_claim: String,
    /// The client by the provider's description, and the time when that was fetched.
    described: Mutex<Option<(Arc<OidcClient>, i64)>>,
}

impl Provider {
    pub(super) fn new(config: &OidcProviderConfig) -> Result<Self, Error> {
        let issuer = IssuerUrl::new(config.issuer.clone());
        let redirect_url = RedirectUrl::new(config.redirect_url.clone());
        let may_be_plain = config.issuer.starts_with("http:");
        let http = ProviderHttp::new(config.ca.as_deref(), may_be_plain);
        let (id, secret) = (config.client_id.clone(), config.client_secret.clone());
        Ok(Self {
            http: http.map_err(|problem| {
                Error::invalid("/ca", finding!("oidc_config", "{problem}", problem))
            })?,
            issuer: issuer.map_err(|error| {
                Error::invalid("/issuer", finding!("oidc_config", "{problem}", problem = error))
            })?,
            client: (ClientId::new(id), ClientSecret::new(secret)),
            redirect_url: redirect_url.map_err(|error| {
                Error::invalid(
                    "/redirect_url",
                    finding!("oidc_config", "{problem}", problem = error),
                )
            })?,
            scopes: config.scopes.iter().cloned().map(Scope::new).collect(),
            groups_claim: config.groups_claim.clone(),
            described: Mutex::new(None),
        })
    }

    /// Returns the URL to which a browser goes to sign in.
    pub(super) async fn location(
        &self,
        login: &PendingLogin,
        at: i64,
    ) -> Result<String, SignInError> {
        let client = self.client(at, GOOD_MS).await?;
        let verifier = PkceCodeVerifier::new(login.verifier.clone());
        let (state, nonce) = (login.state.clone(), login.nonce.clone());
        let (url, _, _) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                || CsrfToken::new(state),
                || Nonce::new(nonce),
            )
            .add_scopes(self.scopes.iter().cloned())
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        Ok(url.into())
    }

    /// Returns the person for whom the provider gave `code` to the browser that began `login`.
    pub(super) async fn person(
        &self,
        login: &PendingLogin,
        code: &str,
        at: i64,
    ) -> Result<Person, SignInError> {
        let client = self.client(at, GOOD_MS).await?;
        let code = AuthorizationCode::new(code.to_owned());
        let exchange = client.exchange_code(code).map_err(unbelievable)?;
        let exchange = exchange.set_pkce_verifier(PkceCodeVerifier::new(login.verifier.clone()));
        let answer = exchange.request_async(&self.http).await.map_err(|error| match error {
            RequestTokenError::Request(error) => unavailable(error),
            error @ RequestTokenError::ServerResponse(_) => SignInError::Code(error_chain(&error)),
            error => unbelievable(error),
        })?;
        let no_token = || SignInError::Unbelievable("no ID token in the response".to_owned());
        let token = answer.id_token().ok_or_else(no_token)?;
        let claims = match claims(&client, token, &login.nonce, at) {
            Err(error) if is_unknown_key(&error) => {
                let client = self.client(at, KEYS_MS).await?;
                claims(&client, token, &login.nonce, at)
            }
            claims => claims,
        };
        self.person_of(claims.map_err(unbelievable)?)
    }

    fn person_of(&self, claims: &Claims) -> Result<Person, SignInError> {
        let sub = person::subject(claims.subject().as_str());
        let sub = sub.ok_or_else(|| SignInError::Unbelievable("invalid subject".to_owned()))?;
        if claims.authorized_party().is_some_and(|party| *party != self.client.0) {
            return Err(SignInError::Unbelievable(
                "the token was issued for another client".to_owned(),
            ));
        }
        let mail = claims.email().filter(|_| claims.email_verified() == Some(true));
        let mail = mail.map(|mail| mail.as_str());
        // An address in this claim is not verified.
        let chosen = claims.preferred_username().map(|name| name.as_str());
        let name = mail.or_else(|| chosen.filter(|name| !name.contains('@')));
        Ok(Person {
            sub: sub.to_owned(),
            name: name.map(str::to_owned),
            groups: person::groups(claims.additional_claims().0.get(&self.groups_claim)),
        })
    }

    /// Returns the client, by a description that is not older than `age_max_ms`. Others wait while one caller
    /// fetches it.
    async fn client(&self, at: i64, age_max_ms: i64) -> Result<Arc<OidcClient>, SignInError> {
        let mut described = self.described.lock().await;
        // A clock that was set back does not make a description last longer.
        let is_good =
            |fetched_at: i64| (fetched_at..fetched_at.saturating_add(age_max_ms)).contains(&at);
        if let Some((client, _)) = described.as_ref().filter(|(_, fetched_at)| is_good(*fetched_at))
        {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(self.described().await?);
        *described = Some((Arc::clone(&client), at));
        Ok(client)
    }

    async fn described(&self) -> Result<OidcClient, SignInError> {
        let described = CoreProviderMetadata::discover_async(self.issuer.clone(), &self.http).await;
        let described = described.map_err(unavailable)?;
        let page = described.authorization_endpoint().as_str();
        if !is_safe_url(page) || (self.issuer.starts_with("https:") && !page.starts_with("https:"))
        {
            return Err(SignInError::Unbelievable(format!("`{page}` is not an `https` URL")));
        }
        let takes = described.token_endpoint_auth_methods_supported();
        let takes_only_post = takes.is_some_and(|all| {
            all.contains(&CoreClientAuthMethod::ClientSecretPost)
                && !all.contains(&CoreClientAuthMethod::ClientSecretBasic)
        });
        let auth = if takes_only_post { AuthType::RequestBody } else { AuthType::BasicAuth };
        let (id, secret) = self.client.clone();
        let client = OidcClient::from_provider_metadata(described, id, Some(secret));
        Ok(client.set_redirect_uri(self.redirect_url.clone()).set_auth_type(auth))
    }
}

impl<'h> AsyncHttpClient<'h> for ProviderHttp {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'h>>;

    fn call(&'h self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

/// Returns the claims of `token`, if the provider issued it, for this client, in time, and for `nonce`.
fn claims<'t>(
    client: &OidcClient,
    token: &'t OidcIdToken,
    nonce: &str,
    at: i64,
) -> Result<&'t Claims, ClaimsVerificationError> {
    // A time out of range counts as later than any expiry.
    let end = DateTime::from_timestamp_millis(at.saturating_sub(SKEW_MS));
    let end = end.unwrap_or(DateTime::<Utc>::MAX_UTC);
    let verifier = client
        .id_token_verifier()
        .set_allowed_algs(ALGORITHMS)
        .set_time_fn(move || end)
        .set_issue_time_verifier_fn(move |issued| fresh(issued, at));
    token.claims(&verifier, &Nonce::new(nonce.to_owned()))
}

/// Checks that a token was issued during the sign-in.
fn fresh(issued: DateTime<Utc>, at: i64) -> Result<(), String> {
    let age_ms = at.saturating_sub(issued.timestamp_millis());
    if (-SKEW_MS..=LOGIN_MS + SKEW_MS).contains(&age_ms) {
        return Ok(());
    }
    Err(format!("the token was issued at {issued}, outside the permitted time"))
}

fn is_unknown_key(error: &ClaimsVerificationError) -> bool {
    use ClaimsVerificationError::SignatureVerification;
    matches!(error, SignatureVerification(SignatureVerificationError::NoMatchingKey))
}

fn unbelievable(error: impl StdError) -> SignInError {
    SignInError::Unbelievable(error_chain(&error))
}

fn unavailable(error: impl StdError) -> SignInError {
    SignInError::Away(error_chain(&error))
}

/// Returns an error with its causes, for the log, on one line. The answers of the provider are not in it.
fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text.chars().filter(|c| !c.is_control()).take(TOLD_CHARS_MAX).collect()
}
