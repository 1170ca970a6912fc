//! An OpenID provider in the test's own process: it signs with RS256, checks what a provider checks, and
//! returns what a test configures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use aws_lc_rs::{digest, hmac};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::client::NOW_S;

pub(crate) const CLIENT_ID: &str = "sluicegate";
pub(crate) const CLIENT_SECRET: &str = "a:b c%/+";

/// The provider.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    inner: Arc<Mutex<Inner>>,
    task: JoinHandle<()>,
}

/// State of the provider, and its faults.
pub(crate) struct Inner {
    issuer: String,
    keys: Vec<(String, RsaKeyPair)>,
    codes: BTreeMap<String, Grant>,
    /// Claims that replace the right ones; a null removes one.
    pub(crate) claims: Value,
    /// The way in which tokens are signed.
    pub(crate) signing: Signing,
    /// Codes can be used again, which is forbidden.
    pub(crate) codes_last: bool,
    /// Members of the description that replace the right ones; a null removes one.
    pub(crate) described: Value,
    /// The description and tokens are answered with 502, as by a gateway with no server behind it.
    pub(crate) is_broken: bool,
    /// Number of requests of each kind.
    pub(crate) asked: BTreeMap<&'static str, u32>,
}

/// The way in which tokens are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Signing {
    /// By the newest key.
    #[default]
    Right,
    /// By a key that it does not publish, under the name of one that it does.
    Forged,
    /// Not at all: `alg` is `none`.
    None,
    /// By the secret that it shares with the client.
    Shared,
    /// By its public key, as if that were shared.
    Published,
}

#[derive(Clone)]
struct Grant {
    challenge: String,
    nonce: String,
    redirect_uri: String,
}

type Shared = Arc<Mutex<Inner>>;

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let (issuer, inner) = inner(format!("http://{address}"));
        let served = axum::serve(listener, router(&inner));
        let task = tokio::spawn(async { served.await.expect("it serves") });
        Self { issuer, inner, task }
    }

    /// Starts a provider with TLS, by a certificate and its key.
    pub(crate) async fn start_tls(cert: &Path, key: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (issuer, inner) = inner(format!("https://localhost:{port}"));
        let served = axum::serve(Tls { listener, acceptor: acceptor(cert, key) }, router(&inner));
        let task = tokio::spawn(async { served.await.expect("it serves") });
        Self { issuer, inner, task }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it is held")
    }

    /// Stops the provider.
    pub(crate) async fn stop(&mut self) {
        self.task.abort();
        (&mut self.task).await.ok();
    }

    /// Signs with another key from now on.
    pub(crate) fn rotate(&self) {
        let mut inner = self.inner();
        let name = format!("k{}", inner.keys.len() + 1);
        let key = (name, new_key());
        inner.keys = vec![key];
    }

    /// Does what a browser does at the page to which it was sent: a person signs in, and the browser is sent back.
    /// Returns the query of the callback.
    pub(crate) fn visit(&self, page: &str) -> String {
        let query = query(page);
        assert!(page.starts_with(&format!("{}/page?", self.issuer)), "{page}");
        for (name, value) in
            [("response_type", "code"), ("client_id", CLIENT_ID), ("code_challenge_method", "S256")]
        {
            assert_eq!(query[name], value, "{page}");
        }
        assert_eq!(query["scope"], "openid email");
        let grant = Grant {
            challenge: query["code_challenge"].clone(),
            nonce: query["nonce"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
        };
        let mut inner = self.inner();
        let code = format!("code-{}", inner.codes.len() + 1);
        inner.codes.insert(code.clone(), grant);
        format!("code={code}&state={}&session_state=x", query["state"])
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the query of a URL.
pub(crate) fn query(url: &str) -> BTreeMap<String, String> {
    let uri: Uri = url.parse().expect("it is a URL");
    let read = axum::extract::Query::try_from_uri(&uri);
    read.expect("it has pairs").0
}

fn inner(issuer: String) -> (String, Shared) {
    let inner = Inner {
        issuer: issuer.clone(),
        keys: vec![("k1".to_owned(), new_key())],
        codes: BTreeMap::new(),
        claims: json!({}),
        signing: Signing::Right,
        codes_last: false,
        described: json!({}),
        is_broken: false,
        asked: BTreeMap::new(),
    };
    (issuer, Arc::new(Mutex::new(inner)))
}

fn router(inner: &Shared) -> Router {
    Router::new()
        .route("/.well-known/openid-configuration", get(description))
        .route("/keys", get(keys))
        .route("/token", post(token))
        .with_state(Arc::clone(inner))
}

fn lock(inner: &Shared) -> MutexGuard<'_, Inner> {
    inner.lock().expect("nothing panics while it is held")
}

async fn description(State(inner): State<Shared>) -> Response {
    let mut inner = lock(&inner);
    *inner.asked.entry("description").or_insert(0) += 1;
    if inner.is_broken {
        return broken();
    }
    let issuer = &inner.issuer;
    let mut description = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/page"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        // It offers algorithms that must not be accepted.
        "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
    });
    put(&mut description, &inner.described);
    if let Some(elsewhere) = inner.described.get("location") {
        let elsewhere = elsewhere.as_str().expect("a URL").to_owned();
        return (StatusCode::FOUND, [(header::LOCATION, elsewhere)]).into_response();
    }
    Json(description).into_response()
}

async fn keys(State(inner): State<Shared>) -> Json<Value> {
    let mut inner = lock(&inner);
    *inner.asked.entry("keys").or_insert(0) += 1;
    let keys = inner.keys.iter().map(|(name, key)| {
        // RFC 8017, appendix A.1.1, of a modulus of 2048 bits: a sequence of two integers.
        let der = key.public_key().as_ref();
        assert_eq!((der.len(), der[8]), (270, 0));
        let (n, e) = (URL_SAFE_NO_PAD.encode(&der[9..265]), URL_SAFE_NO_PAD.encode(&der[267..]));
        json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": n, "e": e })
    });
    Json(json!({ "keys": keys.collect::<Vec<_>>() }))
}

async fn token(
    State(inner): State<Shared>,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let mut inner = lock(&inner);
    *inner.asked.entry("token").or_insert(0) += 1;
    if inner.is_broken {
        return broken();
    }
    let refuse =
        |error: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
    // Both are escaped before they are joined (RFC 6749, section 2.3.1).
    let expected = format!("{CLIENT_ID}:a%3Ab+c%25%2F%2B");
    let shown = headers[header::AUTHORIZATION].to_str().expect("plain text");
    if shown != format!("Basic {}", STANDARD.encode(expected)) {
        return refuse("invalid_client");
    }
    let code = &form["code"];
    let found =
        if inner.codes_last { inner.codes.get(code).cloned() } else { inner.codes.remove(code) };
    let Some(grant) = found else { return refuse("invalid_grant") };
    let hash = digest::digest(&digest::SHA256, form["code_verifier"].as_bytes());
    let is_own = URL_SAFE_NO_PAD.encode(hash) == grant.challenge;
    if !is_own
        || form["grant_type"] != "authorization_code"
        || form["redirect_uri"] != grant.redirect_uri
    {
        return refuse("invalid_grant");
    }
    let token = inner.signed(&grant.nonce);
    Json(
        json!({ "access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": token }),
    )
    .into_response()
}

fn broken() -> Response {
    (StatusCode::BAD_GATEWAY, "<html>").into_response()
}

impl Inner {
    fn signed(&self, nonce: &str) -> String {
        let mut claims = json!({
            "iss": self.issuer, "sub": "1234", "aud": CLIENT_ID, "nonce": nonce,
            "iat": NOW_S, "exp": NOW_S + 300,
        });
        put(&mut claims, &self.claims);
        let (name, key) = self.keys.last().expect("it has one");
        let alg = match self.signing {
            Signing::Right | Signing::Forged => "RS256",
            Signing::None => "none",
            Signing::Shared | Signing::Published => "HS256",
        };
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let said = format!("{}.{}", encode(&json!({ "alg": alg, "kid": name })), encode(&claims));
        let signature = match self.signing {
            Signing::Right => sign(key, &said),
            Signing::Forged => sign(&new_key(), &said),
            Signing::None => Vec::new(),
            Signing::Shared => mac(CLIENT_SECRET.as_bytes(), &said),
            Signing::Published => mac(key.public_key().as_ref(), &said),
        };
        format!("{said}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Replaces the members of `all` by those of `others`; null removes a member.
fn put(all: &mut Value, others: &Value) {
    let all = all.as_object_mut().expect("it is an object");
    for (name, value) in others.as_object().expect("they are an object") {
        all.remove(name);
        if !value.is_null() {
            all.insert(name.clone(), value.clone());
        }
    }
}

fn new_key() -> RsaKeyPair {
    RsaKeyPair::generate(KeySize::Rsa2048).expect("there is randomness")
}

fn sign(key: &RsaKeyPair, said: &str) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    let random = SystemRandom::new();
    key.sign(&RSA_PKCS1_SHA256, &random, said.as_bytes(), &mut signature).expect("it can sign");
    signature
}

fn mac(key: &[u8], said: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, said.as_bytes()).as_ref().to_vec()
}

/// Connections over TLS.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.expect("it listens");
            // A client that does not trust the certificate goes away.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn acceptor(cert: &Path, key: &Path) -> TlsAcceptor {
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let certs = CertificateDer::pem_file_iter(cert).expect("it is there");
    let certs = certs.map(|cert| cert.expect("it is a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(key).expect("it is a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs supports the default protocol versions")
        .with_no_client_auth()
        .with_single_cert(certs, key);
    TlsAcceptor::from(Arc::new(config.expect("they belong together")))
}
